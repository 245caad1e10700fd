package weights

import (
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
)

// TestHostileSafetensors opens files that lie. Each must give an error that says what is wrong, and cost little memory.
func TestHostileSafetensors(t *testing.T) {
	t.Parallel()
	const ok = `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`
	length := func(n uint64, rest string) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, n), rest...)
	}
	entry := func(dtype, shape, offsets string) []byte {
		return rawSafetensors(fmt.Sprintf(`{"a":{"dtype":%q,"shape":%s,"data_offsets":%s}}`, dtype, shape, offsets), make([]byte, 8))
	}
	two := func(a, b string) []byte {
		return rawSafetensors(fmt.Sprintf(`{"a":{"dtype":"U8","shape":[4],"data_offsets":%s},"b":{"dtype":"U8","shape":[4],"data_offsets":%s}}`, a, b), make([]byte, 12))
	}
	for _, c := range []struct {
		name string
		file []byte
		says string
	}{
		{"empty", nil, "0 bytes long"},
		{"too short", []byte("abc"), "too short"},
		{"no header", make([]byte, 8), "not a JSON object"},
		{"header beyond the file", length(1000, ok), "says that its header has 1000 bytes, but only"},
		{"header of 2^63", length(1<<63, ok), "says that its header has 9223372036854775808 bytes"},
		{"header of 2^64-1", length(math.MaxUint64, ok), "at most"},
		{"header over the limit", length(maxHeaderBytes+1, ok), "at most 16777216 are accepted"},
		{"HTML instead", []byte("<!DOCTYPE html><html>not found</html>"), "is a web page"},
		{"a pointer to the file", []byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\n"), "git lfs pull"},
		{"broken JSON", rawSafetensors(ok[:20], make([]byte, 8)), "broken JSON"},
		{"an array", rawSafetensors("[]", nil), "not a JSON object"},
		{"text behind", rawSafetensors(ok+" x", make([]byte, 8)), "behind the JSON object"},
		{"duplicate names", rawSafetensors(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`, make([]byte, 8)), `"a" stands there twice`},
		{"duplicate metadata", rawSafetensors(`{"__metadata__":{},"__metadata__":{}}`, nil), "twice"},
		{"metadata of another kind", rawSafetensors(`{"__metadata__":{"a":[1]}}`, nil), "__metadata__"},
		{"deep JSON", rawSafetensors(`{"a":`+strings.Repeat("[", 1<<20), nil), `"a"`},
		{"deep metadata", rawSafetensors(`{"__metadata__":`+strings.Repeat(`{"a":`, 1<<20), nil), "__metadata__"},
		{"unknown dtype", entry("F128", "[2]", "[0,8]"), `unknown dtype "F128"`},
		{"negative offset", entry("F32", "[2]", "[-8,0]"), "out of order"},
		{"end before begin", entry("F32", "[2]", "[8,0]"), "out of order"},
		{"one offset", entry("F32", "[2]", "[8]"), "data_offsets has 1"},
		{"offset of 2^63", entry("F32", "[2]", "[0,9223372036854775808]"), "does not fit"},
		{"offset of 2^63-1", entry("U8", "[9223372036854775807]", "[0,9223372036854775807]"), "a dimension of"},
		{"negative dimension", entry("F32", "[-2]", "[0,8]"), "a dimension of -2"},
		{"fractional dimension", entry("F32", "[2.5]", "[0,8]"), "does not fit"},
		{"product overflows to the right size", entry("F32", "[2147483647,2147483647,2147483647,2]", "[0,8]"), "too large"},
		{"product overflows to 0", entry("U8", "[1073741824,1073741824,16]", "[0,0]"), "too large"},
		{"shape and range differ", entry("F32", "[3]", "[0,8]"), "takes 12 bytes, data_offsets give it 8"},
		{"many dimensions", entry("F32", "["+strings.Repeat("1,", 99)+"2]", "[0,8]"), "100 dimensions"},
		{"truncated data", rawSafetensors(ok, make([]byte, 7)), "cut short"},
		{"data behind", rawSafetensors(ok, make([]byte, 9)), "1 bytes behind the last tensor"},
		{"overlap", two("[0,4]", "[2,6]"), "inside the tensor before it"},
		{"gap", two("[0,4]", "[8,12]"), "the tensor before it ends at 4"},
		{"same range", two("[0,4]", "[0,4]"), "inside the tensor before it"},
		{"does not start at 0", entry("U8", "[4]", "[4,8]"), "begins at byte 4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := NewSafetensors("some.safetensors", strings.NewReader(string(c.file)), int64(len(c.file)))
			wantWords(t, err, "some.safetensors", c.says)
		})
	}
	if _, err := NewSafetensors("ok", strings.NewReader(string(rawSafetensors(ok+"   ", make([]byte, 8)))), 8+int64(len(ok))+3+8); err != nil {
		t.Errorf("a right file with padding: %v", err)
	}
}

// TestLyingSizesCostNoMemory: what a file claims is never allocated. It does not run in parallel, so that nothing else
// allocates meanwhile.
func TestLyingSizesCostNoMemory(t *testing.T) {
	config := func(from, to string) fstest.MapFS {
		fsys, _ := smallModel(t)
		fsys["config.json"].Data = []byte(strings.Replace(smallConfig, from, to, 1))
		return fsys
	}
	cases := map[string]func() error{
		"header of 2^63": func() error {
			_, err := NewSafetensors("x", strings.NewReader("\x00\x00\x00\x00\x00\x00\x00\x80{}"), 1<<62)
			return err
		},
		"header of 16 MB in a file of 10 bytes": func() error {
			_, err := NewSafetensors("x", strings.NewReader("\x00\x00\x00\x01\x00\x00\x00\x00{}"), 10)
			return err
		},
		"tensor of 2^40 bytes": func() error {
			f := rawSafetensors(`{"a":{"dtype":"U8","shape":[1048576,1048576],"data_offsets":[0,1099511627776]}}`, nil)
			_, err := NewSafetensors("x", strings.NewReader(string(f)), int64(len(f)))
			return err
		},
	}
	for what, fsys := range map[string]fstest.MapFS{
		"vocabulary of 2^24": config(`"vocab_size":40`, `"vocab_size":16777216`),
		"1024 layers":        config(`"num_hidden_layers":1`, `"num_hidden_layers":1024`),
	} {
		cases[what] = func() error {
			_, err := OpenFS(fsys, "some")
			return err
		}
	}
	for what, open := range cases {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := open()
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: no error", what)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
			t.Errorf("%s: %d bytes were allocated", what, n)
		}
	}
}

// TestTruncatedSafetensors cuts a right file at every length.
func TestTruncatedSafetensors(t *testing.T) {
	t.Parallel()
	file := makeSafetensors([]tensorData{{"a", "F32", []int{2}, make([]byte, 8)}, {"b", "U8", []int{1, 3}, make([]byte, 3)}})
	for n := range file {
		if _, err := NewSafetensors("cut", strings.NewReader(string(file[:n])), int64(n)); err == nil {
			t.Errorf("cut to %d of %d bytes: no error", n, len(file))
		}
	}
}

// TestFileThatShrinks: the header was right, but the data are gone when they are read.
func TestFileThatShrinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fsys, _ := smallModel(t)
	for name, f := range fsys {
		if err := os.WriteFile(filepath.Join(dir, name), f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	src := openDirTest(t, dir)
	if err := os.Truncate(filepath.Join(dir, "model.safetensors"), int64(len(fsys["model.safetensors"].Data)-10)); err != nil {
		t.Fatal(err)
	}
	_, err := src.Vector(t.Context(), "model.norm.weight")
	wantWords(t, err, "model.safetensors", "model.norm.weight", "unexpected EOF")
}

// TestHostileConfig opens models whose configuration is broken or asks for what is not supported.
func TestHostileConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, from, to string // what to replace in the right one
		says           string
	}{
		{"cut", smallConfig[100:], "", "broken JSON"},
		{"deep", smallConfig, strings.Repeat(`{"a":`, 200000), "broken JSON"},
		{"list", smallConfig, "[]", "array does not fit"},
		{"string for a number", `"hidden_size":32`, `"hidden_size":"32"`, "hidden_size: a string"},
		{"no size", `"hidden_size":32,`, ``, "hidden_size is missing"},
		{"2^63", `"vocab_size":40`, `"vocab_size":9223372036854775808`, "vocab_size: a number 9223372036854775808"},
		{"2^62", `"vocab_size":40`, `"vocab_size":4611686018427387904`, "vocab_size is 4611686018427387904"},
		{"negative", `"num_hidden_layers":1`, `"num_hidden_layers":-1`, "num_hidden_layers is -1"},
		{"no heads", `"num_attention_heads":2`, `"num_attention_heads":0`, "num_attention_heads is 0"},
		{"no kv heads", `"num_key_value_heads":1`, `"num_key_value_heads":0`, "num_key_value_heads is 0"},
		{"many layers", `"num_hidden_layers":1`, `"num_hidden_layers":1025`, "num_hidden_layers is 1025"},
		{"odd hidden", `"hidden_size":32`, `"hidden_size":33`, "hidden_size is 33, want a multiple of 8"},
		{"odd head", `"head_dim":16`, `"head_dim":24`, "head_dim is 24, want a multiple of 16"},
		{"large head", `"head_dim":16`, `"head_dim":512`, "head_dim is 512"},
		{"kv heads", `"num_key_value_heads":1`, `"num_key_value_heads":4`, "no multiple of num_key_value_heads"},
		{"eps", `"rms_norm_eps":1e-5`, `"rms_norm_eps":0`, "rms_norm_eps is 0"},
		{"theta", `"rope_theta":500000`, `"rope_theta":-1`, "rope_theta is -1"},
		{"theta overflow", `"rope_theta":500000`, `"rope_theta":1e999`, "rope_theta"},
		{"eos", `"eos_token_id":2`, `"eos_token_id":40`, "eos_token_id 40 is outside the vocabulary of 40"},
		{"eos kind", `"eos_token_id":2`, `"eos_token_id":{"a":1}`, "neither a token id nor a list"},
		{"bos", `"bos_token_id":1`, `"bos_token_id":-7`, "bos_token_id -7"},
		{"activation", `"silu"`, `"gelu"`, `hidden_act "gelu" is not supported`},
		{"architecture", "Ernie4_5_ForCausalLM", "MixtralForCausalLM", `"MixtralForCausalLM" is not supported; supported are`},
		{"no architecture", `"architectures":["Ernie4_5_ForCausalLM"],"model_type":"ernie4_5",`, ``, "names no architecture"},
		{"model type", `"architectures":["Ernie4_5_ForCausalLM"],"model_type":"ernie4_5",`, `"model_type":"mamba",`, `model_type "mamba" is not supported`},
		{"rope scaling", `"rope_theta":500000`, `"rope_scaling":{"type":"yarn","factor":4}`, `rope_scaling: rope type "yarn" is not supported`},
		{"rope parameters", `"rope_theta":500000`, `"rope_parameters":{"rope_type":"dynamic"}`, `rope_parameters: rope type "dynamic"`},
		{"partial rope", `"rope_theta":500000`, `"rope_parameters":{"rope_type":"default","partial_rotary_factor":0.5}`, "partial_rotary_factor 0.5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys, _ := smallModel(t)
			if !strings.Contains(smallConfig, c.from) {
				t.Fatalf("%q is not in the configuration", c.from)
			}
			fsys["config.json"].Data = []byte(strings.Replace(smallConfig, c.from, c.to, 1))
			_, err := OpenFS(fsys, "some")
			wantWords(t, err, "some/config.json", c.says)
		})
	}
	for _, c := range [][2]string{
		{`{`, "broken JSON"},
		{`{"temperature":-1}`, "temperature is -1"},
		{`{"top_p":"a"}`, "generation_config.json: top_p: a string does not fit"},
		{`{"top_p":0}`, "top_p is 0"},
		{`[]`, "an array does not fit"},
		{`{"eos_token_id":[2,99]}`, "eos_token_id 99"},
		{`{"eos_token_id":[2,"a"]}`, "eos_token_id is neither"},
	} {
		fsys, _ := smallModel(t)
		fsys["generation_config.json"] = &fstest.MapFile{Data: []byte(c[0])}
		_, err := OpenFS(fsys, "some")
		wantWords(t, err, "generation_config.json", c[1])
	}
	fsys, _ := smallModel(t)
	fsys["config.json"].Data = make([]byte, maxConfigBytes+1)
	_, err := OpenFS(fsys, "some")
	wantWords(t, err, "some/config.json", "larger than")
	delete(fsys, "config.json")
	_, err = OpenFS(fsys, "some")
	wantWords(t, err, "config.json is missing")
}

// TestConfigSpellings: what differs between the checkpoints' own code and transformers means the same.
func TestConfigSpellings(t *testing.T) {
	t.Parallel()
	want := mustJSON(t, mustConfig(t, smallConfig))
	for _, r := range [][2]string{
		{"Ernie4_5_ForCausalLM", "Ernie4_5ForCausalLM"},
		{`"architectures":["Ernie4_5_ForCausalLM"],`, ``},
		{`"rope_theta":500000`, `"rope_parameters":{"rope_theta":500000,"rope_type":"default"},"rope_theta":null`},
		{`"rope_theta":500000`, `"rope_theta":500000,"rope_scaling":null,"quantization_config":null,"torch_dtype":"float64","dtype":null`},
		{`"rope_theta":500000`, `"rope_theta":500000,"rope_scaling":{"type":"default"}`},
		{`"head_dim":16,`, ``},
		{`"head_dim":16`, `"head_dim":null`},
		{`"tie_word_embeddings":true,`, ``},
		{`"eos_token_id":2`, `"eos_token_id":[2,2]`},
		{smallConfig[:1], "\xef\xbb\xbf{"},
	} {
		if got := mustJSON(t, mustConfig(t, strings.Replace(smallConfig, r[0], r[1], 1))); got != want {
			t.Errorf("%q as %q gives\n%s\nwant\n%s", r[0], r[1], got, want)
		}
	}
	c := mustConfig(t, strings.Replace(smallConfig, `"rope_theta":500000`, `"rope_parameters":{"rope_theta":10000.0,"rope_type":"default"}`, 1))
	if c.RopeTheta != 10000 {
		t.Errorf("rope theta %v, want that of rope_parameters", c.RopeTheta)
	}
}

func mustConfig(t *testing.T, text string) *Config {
	t.Helper()
	c, err := parseConfig([]byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestHostileWeights opens models whose tensors are missing, of the wrong shape or kind, or hold NaN.
func TestHostileWeights(t *testing.T) {
	t.Parallel()
	const q = "model.layers.0.self_attn.q_proj.weight"
	edit := func(do func(d *tensorData) bool) fstest.MapFS {
		fsys, tensors := smallModel(t)
		var kept []tensorData
		for _, d := range tensors {
			if do(&d) {
				kept = append(kept, d)
			}
		}
		fsys["model.safetensors"].Data = makeSafetensors(kept)
		return fsys
	}
	one := func(name string, do func(d *tensorData)) fstest.MapFS {
		return edit(func(d *tensorData) bool {
			if d.name == name {
				do(d)
			}
			return true
		})
	}
	for _, c := range []struct {
		name string
		fsys fstest.MapFS
		says []string
	}{
		{"missing", edit(func(d *tensorData) bool { return d.name != q }), []string{q, "no such tensor", "expected with shape [32 32]"}},
		{"all missing", edit(func(d *tensorData) bool { return d.name == q }), []string{"model.embed_tokens.weight", "and 6 tensors more"}},
		{"shape", one(q, func(d *tensorData) { d.shape, d.data = []int{16, 32}, d.data[:1024] }), []string{q, "has shape [16 32], the configuration asks for [32 32]"}},
		{"transposed", one("model.embed_tokens.weight", func(d *tensorData) { d.shape = []int{32, 40} }), []string{"[32 40]", "[40 32]"}},
		{"three dimensions", one(q, func(d *tensorData) { d.shape = []int{2, 16, 32} }), []string{q, "has shape [2 16 32]"}},
		{"vector as matrix", one("model.norm.weight", func(d *tensorData) { d.shape = []int{32, 1} }), []string{"model.norm.weight", "[32 1]", "asks for [32]"}},
		{"f8", one(q, func(d *tensorData) { d.dtype, d.data = "F8_E4M3", d.data[:1024] }), []string{q, "is stored as F8_E4M3; weights can be F32, F16 or BF16"}},
		{"int", one(q, func(d *tensorData) { d.dtype = "I16" }), []string{q, "I16"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := OpenFS(c.fsys, "some")
			wantWords(t, err, append(c.says, "some/model.safetensors")...)
		})
	}
	for _, v := range []struct {
		dtype string
		bits  []uint64
		width int
	}{
		{"BF16", []uint64{0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0xFFFF}, 2},
		{"F16", []uint64{0x7C00, 0xFC00, 0x7E00, 0x7C01}, 2},
		{"F32", []uint64{0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001}, 4},
	} {
		for i, bits := range v.bits {
			at := 7*32 + 13 + i // row 7, column 13 + i
			fsys := one(q, func(d *tensorData) {
				d.dtype, d.data = v.dtype, make([]byte, v.width*32*32)
				var b [8]byte
				binary.LittleEndian.PutUint64(b[:], bits)
				copy(d.data[at*v.width:], b[:v.width])
			})
			src, err := OpenFS(fsys, "some")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := src.Rows(t.Context(), q, 0, 7); err != nil {
				t.Errorf("rows before the bad one: %v", err)
			}
			_, err = src.Rows(t.Context(), q, 2, 30)
			wantWords(t, err, "some/model.safetensors", q, fmt.Sprintf("row 7, column %d is NaN or infinite", 13+i))
		}
	}
	// The largest finite values pass.
	src, err := OpenFS(one("model.norm.weight", func(d *tensorData) { copy(d.data, "\x7f\x7f\x7f\xff") }), "some")
	if err != nil {
		t.Fatal(err)
	}
	if v, err := src.Vector(t.Context(), "model.norm.weight"); err != nil || v[0] < 3e38 || v[1] > -3e38 {
		t.Errorf("largest finite values: %v, %v", v[:2], err)
	}
}

// TestHostileIndex opens sharded models whose index is wrong.
func TestHostileIndex(t *testing.T) {
	t.Parallel()
	_, tensors := smallModel(t)
	names := func(file string) string {
		var parts []string
		for _, d := range tensors {
			parts = append(parts, fmt.Sprintf("%q:%q", d.name, file))
		}
		return `{"metadata":{"total_size":1},"weight_map":{` + strings.Join(parts, ",") + `}}`
	}
	shard := "model-00001-of-00001.safetensors"
	open := func(index string, more fstest.MapFS) error {
		fsys, _ := smallModel(t)
		fsys[shard] = fsys["model.safetensors"]
		delete(fsys, "model.safetensors")
		fsys["model.safetensors.index.json"] = &fstest.MapFile{Data: []byte(index)}
		for n, f := range more {
			fsys[n] = f
		}
		src, err := OpenFS(fsys, "some")
		if err == nil {
			drop(src)
		}
		return err
	}
	if err := open(names(shard), nil); err != nil {
		t.Fatalf("a right index: %v", err)
	}
	const index = "model.safetensors.index.json"
	for _, c := range []struct {
		name, index string
		more        fstest.MapFS
		says        []string
	}{
		{"missing file", names("model-00002-of-00002.safetensors"), nil, []string{index, "names model-00002-of-00002.safetensors, which is missing"}},
		{"outside", names("../../secret.safetensors"), nil, []string{index, "not the path of a safetensors file inside the folder"}},
		{"absolute", names("/etc/passwd.safetensors"), nil, []string{index, "/etc/passwd"}},
		{"windows", names(`..\\secret.safetensors`), nil, []string{index, "inside the folder"}},
		{"itself", names(index), nil, []string{index, "not the path of a safetensors file"}},
		{"a folder", names("sub.safetensors"), fstest.MapFS{"sub.safetensors": {Mode: fs.ModeDir}}, []string{"sub.safetensors", "not a regular file"}},
		{"empty", `{"weight_map":{}}`, nil, []string{index, "weight_map is missing or empty"}},
		{"none", `{}`, nil, []string{index, "weight_map is missing or empty"}},
		{"nonsense", `{"weight_map":[1,2]}`, nil, []string{index, "weight_map"}},
		{"cyclic", `{"weight_map":{"a":{"weight_map":{"a":"b"}}}}`, nil, []string{index, "weight_map"}},
		{"deep", `{"weight_map":` + strings.Repeat("[", 1<<20), nil, []string{index, "broken JSON"}},
		{"lies", strings.Replace(names(shard), "{\"model", `{"nobody":"`+shard+`","model`, 1), nil, []string{shard, `"nobody"`, "no such tensor", index}},
		{"forgets", strings.Replace(names(shard), "model.norm", "model.layers.0.input_layernorm", 1), nil, []string{index, "model.norm.weight", "no such tensor"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantWords(t, open(c.index, c.more), append(c.says, "some/")...)
		})
	}
	fsys, _ := smallModel(t)
	delete(fsys, "model.safetensors")
	fsys["pytorch_model.bin"] = &fstest.MapFile{}
	_, err := OpenFS(fsys, "some")
	wantWords(t, err, "neither model.safetensors nor", "pytorch_model.bin is of a kind that is not supported")
}

func TestHostileFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := OpenDir(filepath.Join(dir, "nobody"))
	wantWords(t, err, "nobody")
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = OpenDir(file)
	wantWords(t, err, "is a file")
	if runtime.GOOS == "windows" || runtime.GOOS == "js" {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(smallConfig), 0o644); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"model.safetensors": "other.safetensors", "other.safetensors": "model.safetensors"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	_, err = OpenDir(dir)
	wantWords(t, err, "model.safetensors", "symbolic links")
}

func TestPaddleNames(t *testing.T) {
	t.Parallel()
	plain, tensors := smallModel(t)
	byName := map[string]tensorData{}
	for _, d := range tensors {
		byName[d.name] = d
	}
	var paddle []tensorData
	fuse := func(name string, rows int, parts ...string) {
		d := tensorData{name: name, dtype: "BF16", shape: []int{rows, 32}}
		for _, p := range parts {
			d.data = append(d.data, byName[p].data...)
			delete(byName, p)
		}
		paddle = append(paddle, d)
	}
	const l = "model.layers.0."
	fuse("ernie.layers.0.self_attn.qkv_proj.weight", 64, l+"self_attn.q_proj.weight", l+"self_attn.k_proj.weight", l+"self_attn.v_proj.weight")
	fuse("ernie.layers.0.mlp.up_gate_proj.weight", 128, l+"mlp.gate_proj.weight", l+"mlp.up_proj.weight")
	for _, d := range byName {
		d.name = strings.Replace(d.name, "model.", "ernie.", 1)
		paddle = append(paddle, d)
	}
	want, err := OpenFS(plain, "plain")
	if err != nil {
		t.Fatal(err)
	}
	got, err := OpenFS(fstest.MapFS{"config.json": plain["config.json"], "model.safetensors": {Data: makeSafetensors(paddle)}}, "paddle")
	if err != nil {
		t.Fatal(err)
	}
	wantSameWeights(t, got, want)

	// Stored the other way round, as Paddle's own layers are, it is refused and not computed wrongly.
	paddle[0].shape = []int{32, 64}
	_, err = OpenFS(fstest.MapFS{"config.json": plain["config.json"], "model.safetensors": {Data: makeSafetensors(paddle)}}, "paddle")
	wantWords(t, err, l+"self_attn.q_proj.weight", "no such tensor")
}

func TestCancel(t *testing.T) {
	t.Parallel()
	src := openDirTest(t, goldens+"ernie")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := src.Rows(ctx, "model.embed_tokens.weight", 0, 10)
	wantWords(t, err, "canceled")
}

func FuzzSafetensors(f *testing.F) {
	f.Add(makeSafetensors([]tensorData{{"a", "F32", []int{2}, make([]byte, 8)}, {"b", "BF16", []int{1, 3}, make([]byte, 6)}}))
	f.Add(rawSafetensors(`{"__metadata__":{"format":"pt"},"x":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}  `, []byte{1}))
	f.Add(rawSafetensors(`{"a":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}}`, make([]byte, 3)))
	f.Add(rawSafetensors(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,9223372036854775807]}}`, make([]byte, 3)))
	f.Fuzz(func(t *testing.T, file []byte) {
		s, err := NewSafetensors("fuzz", strings.NewReader(string(file)), int64(len(file)))
		if err != nil {
			return
		}
		// What is accepted tiles the file and can be read.
		total := int64(8) + int64(binary.LittleEndian.Uint64(file))
		for _, name := range s.Names() {
			st, err := s.Tensor(name)
			if err != nil || st.Size < 0 || st.Offset < 8 || st.Offset+st.Size > int64(len(file)) {
				t.Fatalf("%q: %+v of %d bytes, %v", name, st, len(file), err)
			}
			total += st.Size
			if _, err := floatFormat(st.DType); err == nil {
				if _, err := s.Float32s(name); err != nil {
					t.Fatal(err)
				}
			}
		}
		if total != int64(len(file)) {
			t.Fatalf("tensors take %d bytes of %d", total, len(file))
		}
	})
}
