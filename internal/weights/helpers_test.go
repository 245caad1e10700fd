package weights

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func mustJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func mustUnmarshal(t testing.TB, raw []byte, to any) {
	t.Helper()
	if err := json.Unmarshal(raw, to); err != nil {
		t.Fatal(err)
	}
}

// wantWords fails unless err says all of the words.
func wantWords(t testing.TB, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one that says %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

// tensorData is a tensor of a file that a test makes.
type tensorData struct {
	name  string
	dtype string
	shape []int
	data  []byte
}

// makeSafetensors writes a file that follows the format.
func makeSafetensors(tensors []tensorData) []byte {
	var head, data []byte
	head = append(head, '{')
	for i, t := range tensors {
		if i > 0 {
			head = append(head, ',')
		}
		shape, _ := json.Marshal(t.shape) //nolint:errchkjson // ints
		head = fmt.Appendf(head, `%q:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`, t.name, t.dtype, shape, len(data), len(data)+len(t.data))
		data = append(data, t.data...)
	}
	return rawSafetensors(string(head)+"}", data)
}

// rawSafetensors puts any header before any data.
func rawSafetensors(header string, data []byte) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return slices.Concat(out, []byte(header), data)
}

const smallConfig = `{"architectures":["Ernie4_5_ForCausalLM"],"model_type":"ernie4_5","hidden_act":"silu","hidden_size":32,
"intermediate_size":64,"num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":16,"vocab_size":40,
"max_position_embeddings":128,"rms_norm_eps":1e-5,"rope_theta":500000,"tie_word_embeddings":true,"bos_token_id":1,"eos_token_id":2}`

// smallModel is a whole bf16 model of some kilobytes with the configuration smallConfig.
func smallModel(t testing.TB) (fstest.MapFS, []tensorData) {
	t.Helper()
	c, err := parseConfig([]byte(smallConfig), nil)
	if err != nil {
		t.Fatal(err)
	}
	var tensors []tensorData
	for _, s := range Tensors(c) {
		d := tensorData{name: s.Name, dtype: "BF16", shape: []int{s.Rows, s.K}, data: make([]byte, 2*s.Rows*s.K)}
		if s.Vector {
			d.shape = []int{s.K}
		}
		for i := range s.Rows * s.K {
			h := uint16(synHash(synSeed(s.Name), uint64(i)))
			binary.LittleEndian.PutUint16(d.data[2*i:], h&0x807F|0x3E80) // 0.25 to 0.5, either sign
		}
		tensors = append(tensors, d)
	}
	return fstest.MapFS{
		"config.json":       {Data: []byte(smallConfig)},
		"model.safetensors": {Data: makeSafetensors(tensors)},
	}, tensors
}

// wantSameWeights fails unless both sources have the same formats, bytes and scales.
func wantSameWeights(t testing.TB, got, want Source) {
	t.Helper()
	for _, s := range Tensors(want.Config()) {
		if s.Vector {
			g, err := got.Vector(t.Context(), s.Name)
			if err != nil {
				t.Fatal(err)
			}
			w, err := want.Vector(t.Context(), s.Name)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(g, w) {
				t.Fatalf("%s differs", s.Name)
			}
			continue
		}
		gi, err := got.Info(s.Name)
		if err != nil {
			t.Fatal(err)
		}
		wi, err := want.Info(s.Name)
		if err != nil {
			t.Fatal(err)
		}
		if gi != wi {
			t.Fatalf("%s: %+v, want %+v", s.Name, gi, wi)
		}
		for lo, hi := range Pieces(want, s.Name, wi, 1<<20) {
			gd, gs := loadRows(t, got, s.Name, lo, hi)
			wd, ws := loadRows(t, want, s.Name, lo, hi)
			if !slices.Equal(gd, wd) || !slices.Equal(gs, ws) {
				t.Fatalf("%s: rows %d to %d differ", s.Name, lo, hi)
			}
		}
	}
}

// loadRows reads rows into memory of their own.
func loadRows(t testing.TB, src Source, name string, lo, hi int) (data, scales []byte) {
	t.Helper()
	r, err := src.Rows(t.Context(), name, lo, hi)
	if err != nil {
		t.Fatal(err)
	}
	if data, err = r.Data.Load(nil); err != nil {
		t.Fatal(err)
	}
	if scales, err = r.Scales.Load(nil); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(data), slices.Clone(scales)
}
