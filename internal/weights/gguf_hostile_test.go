package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestHostileGGUF opens files that lie. Each must give an error that says what is wrong.
func TestHostileGGUF(t *testing.T) {
	t.Parallel()
	le := binary.LittleEndian
	right := smallGGUF(t, "ernie4_5")
	start := func(version uint32, tensors, keys uint64) []byte {
		b := le.AppendUint32([]byte("GGUF"), version)
		return le.AppendUint64(le.AppendUint64(b, tensors), keys)
	}
	key := func(value rawGGUF) []byte { return ggufMaker{kv: []ggufKV{{"a", value}}}.file() }
	array := func(kind ggufType, n uint64, more ...byte) rawGGUF {
		b := le.AppendUint32(nil, uint32(ggufArray))
		return append(le.AppendUint64(le.AppendUint32(b, uint32(kind)), n), more...)
	}
	scalar := func(kind uint32, more ...byte) rawGGUF { return append(le.AppendUint32(nil, kind), more...) }
	tensor := func(dims []uint64, kind ggmlType, offset uint64) []byte {
		return ggufMaker{tensors: []ggufEntry{{name: "a", dims: dims, kind: kind, offset: &offset}}}.file()
	}
	at := func(offsets ...uint64) []byte {
		var m ggufMaker
		for i := range offsets {
			m.tensors = append(m.tensors, ggufEntry{name: fmt.Sprint("t", i), dims: []uint64{16}, kind: ggmlF32, offset: &offsets[i]})
		}
		return append(m.file(), make([]byte, 256)...)
	}
	twice := right.with("general.name", "x")
	twice.kv = append(twice.kv, ggufKV{"general.name", "y"})
	for _, c := range []struct {
		name string
		file []byte
		says []string
	}{
		{"empty", nil, []string{"no GGUF file"}},
		{"short", []byte("GG"), []string{`begins with "GG"`, "no GGUF file"}},
		{"magic alone", []byte("GGUF"), []string{"cut short"}},
		{"HTML instead", []byte("<!DOCTYPE html><html>not found</html>"), []string{"is a web page"}},
		{"a pointer to the file", []byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\n"), []string{"git lfs pull"}},
		{"GGML", []byte("lmgg\x01\x00\x00\x00"), []string{"before GGUF"}},
		{"version 1", start(1, 0, 0), []string{"GGUF version 1", "versions 2 and 3"}},
		{"version 4", start(4, 0, 0), []string{"GGUF version 4"}},
		{"version 0", start(0, 0, 0), []string{"GGUF version 0"}},
		{"big-endian", []byte("GGUF\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x01"), []string{"big-endian"}},
		{"2^63 tensors", start(3, 1<<63, 0), []string{"9223372036854775808 tensors"}},
		{"2^64-1 keys", start(3, 0, math.MaxUint64), []string{"18446744073709551615 keys"}},
		{"many keys, none there", start(3, 0, 1<<16), []string{"key 1 of 65536", "cut short"}},
		{"many tensors, none there", start(3, 1<<17, 0), []string{"tensor 1 of 131072", "cut short"}},
		{"key of 2^63 bytes", le.AppendUint64(start(3, 0, 1), 1<<63), []string{"a string of 9223372036854775808 bytes"}},
		{"key beyond the file", le.AppendUint64(start(3, 0, 1), 100), []string{"cut short"}},
		{"string of 2^64-1 bytes", key(scalar(8, slices.Repeat([]byte{255}, 8)...)), []string{`"a"`, "a string of 18446744073709551615 bytes"}},
		{"string beyond the file", key(scalar(8, 0, 0, 1, 0, 0, 0, 0, 0)), []string{`"a"`, "cut short"}},
		{"unknown type", key(scalar(13, 0)), []string{`"a"`, "unknown type 13"}},
		{"unknown type 2^32-1", key(scalar(math.MaxUint32, 0)), []string{"unknown type 4294967295"}},
		{"a bool of 2", key(scalar(7, 2)), []string{"neither 0 nor 1"}},
		{"an array of arrays", key(array(ggufArray, 1)), []string{"array of arrays"}},
		{"an array of an unknown type", key(array(77, 1)), []string{"unknown type 77"}},
		{"an array of 2^63", key(array(ggufU8, 1<<63)), []string{"9223372036854775808 elements"}},
		{"strings that are not there", key(array(ggufString, 1<<20)), []string{"cut short"}},
		{"numbers that are not there", key(array(ggufF64, 1<<20)), []string{"cut short"}},
		{"a key twice", twice.file(), []string{`"general.name" stands there twice`}},
		{"a tensor twice", right.add(right.tensors[0]).file(), []string{`"token_embd.weight" stands there twice`}},
		{"no dimension", tensor(nil, ggmlF32, 0), []string{`"a" has 0 dimensions`}},
		{"five dimensions", tensor([]uint64{1, 1, 1, 1, 1}, ggmlF32, 0), []string{`"a" has 5 dimensions`}},
		{"a dimension of 0", tensor([]uint64{8, 0}, ggmlF32, 0), []string{"a dimension of 0"}},
		{"a dimension of 2^63", tensor([]uint64{1 << 63}, ggmlF32, 0), []string{"a dimension of 9223372036854775808"}},
		{"a product over 2^64", tensor([]uint64{1 << 30, 1 << 30, 16}, ggmlF32, 0), []string{"more than there can be"}},
		{"a product that is 0 in 64 bits", tensor([]uint64{1 << 30, 1 << 30, 16, 1}, ggmlF32, 0), []string{"more than there can be"}},
		{"no whole block", tensor([]uint64{33}, ggmlQ40, 0), []string{"rows of 33 values", "32 in a block of Q4_0"}},
		{"an offset of 2^64-1", tensor([]uint64{8}, ggmlF32, math.MaxUint64), []string{"begins at byte 18446744073709551615"}},
		{"an offset beyond the file", tensor([]uint64{8}, ggmlF32, 1<<40), []string{"cut short"}},
		{"larger than the file", tensor([]uint64{1 << 20, 1 << 20}, ggmlF32, 0), []string{`"a" has 4398046511104 bytes`, "cut short"}},
		{"odd offset", at(4), []string{"no multiple of the alignment 32"}},
		{"overlap", at(0, 32), []string{`"t1" begins at byte 32 of the data, inside "t0", which ends at 64`}},
		{"same place", at(64, 64), []string{`inside "t0"`}},
		{"IQ2_XXS", tensor([]uint64{256}, 16, 0), []string{`"a"`, "IQ2_XXS", "Q4_K_M"}},
		{"TQ1_0", tensor([]uint64{256}, 34, 0), []string{"TQ1_0"}},
		{"MXFP4", tensor([]uint64{256}, 39, 0), []string{"MXFP4"}},
		{"removed", tensor([]uint64{256}, 31, 0), []string{"Q4_0_4_4"}},
		{"unknown tensor type", tensor([]uint64{256}, 4000, 0), []string{"type 4000, which is unknown"}},
		{"alignment 0", right.with("general.alignment", uint32(0)).file(), []string{"general.alignment is 0"}},
		{"alignment 48", right.with("general.alignment", uint32(48)).file(), []string{"general.alignment is 48", "power of two"}},
		{"alignment 2^31", right.with("general.alignment", uint32(1<<31)).file(), []string{"general.alignment is 2147483648"}},
		{"alignment as text", right.with("general.alignment", "32").file(), []string{"general.alignment is of type string"}},
		{"data cut", right.file()[:len(right.file())-100], []string{"cut short"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := OpenGGUF(t.Context(), "folder/some.gguf", memBlob(c.file))
			wantWords(t, err, append(c.says, "folder/some.gguf")...)
		})
	}
}

// TestHostileGGUFConfig opens files whose metadata are wrong or ask for what is not supported.
func TestHostileGGUFConfig(t *testing.T) {
	t.Parallel()
	right := smallGGUF(t, "ernie4_5")
	for _, c := range []struct {
		key   string
		value any // nil: without the key
		says  string
	}{
		{"general.architecture", nil, "general.architecture is missing"},
		{"general.architecture", "gemma3", `"gemma3" is not supported; ernie4_5`},
		{"general.architecture", "clip", "mmproj"},
		{"general.type", "mmproj", "give the file of its language model"},
		{"general.type", "adapter", `general.type is "adapter"`},
		{"ernie4_5.block_count", nil, "ernie4_5.block_count is missing"},
		{"ernie4_5.block_count", "1", "ernie4_5.block_count is of type string"},
		{"ernie4_5.block_count", uint32(1025), "num_hidden_layers is 1025"},
		{"ernie4_5.block_count", int32(-1), "ernie4_5.block_count is -1"},
		{"ernie4_5.block_count", uint64(1 << 63), "ernie4_5.block_count"},
		{"ernie4_5.context_length", nil, "ernie4_5.context_length is missing"},
		{"ernie4_5.embedding_length", uint64(1 << 40), "ernie4_5.embedding_length is 1099511627776"},
		{"ernie4_5.feed_forward_length", []int32{64, 32}, "feed_forward_length differs from layer to layer"},
		{"ernie4_5.feed_forward_length", []int32{}, "feed_forward_length differs"},
		{"ernie4_5.attention.head_count", uint32(0), "attention.head_count is 0"},
		{"ernie4_5.attention.head_count_kv", []float32{1}, "head_count_kv is an array of f32"},
		{"ernie4_5.attention.head_count_kv", uint32(3), "no multiple"},
		{"ernie4_5.attention.value_length", uint32(32), "value_length is 32"},
		{"ernie4_5.rope.dimension_count", uint32(8), "rope.dimension_count is 8 of heads of 16"},
		{"ernie4_5.attention.causal", false, "embeddings"},
		{"ernie4_5.attention.layer_norm_rms_epsilon", nil, "rms_norm_eps is 0"},
		{"ernie4_5.attention.layer_norm_rms_epsilon", float32(math.Inf(1)), "layer_norm_rms_epsilon is +Inf"},
		{"ernie4_5.rope.freq_base", float32(math.NaN()), "freq_base is NaN"},
		{"ernie4_5.rope.freq_base", float32(-1), "rope_theta is -1"},
		{"ernie4_5.rope.scaling.factor", float32(4), `rope.scaling.type is "none" with factor 4`},
		{"ernie4_5.rope.scale_linear", float32(2), "with factor 2"},
		{"ernie4_5.rope.scaling.type", "longrope", `"longrope"`},
		{"ernie4_5.expert_count", uint32(8), "expert_count is 8: a mixture of experts is supported in ernie4_5-moe only"},
		{"tokenizer.ggml.eos_token_id", uint32(40), "eos_token_id 40 is outside the vocabulary of 40"},
		{"tokenizer.ggml.bos_token_id", uint32(99), "bos_token_id 99"},
		{"tokenizer.ggml.eos_token_id", "2", "tokenizer.ggml.eos_token_id is of type string"},
		{"tokenizer.ggml.eot_token_id", int32(-7), "tokenizer.ggml.eot_token_id is -7"},
		{"general.sampling.temp", float32(-1), "temperature is -1"},
		{"general.sampling.top_k", "40", "general.sampling.top_k is of type string"},
		{"split.count", uint16(2), "part 1 of 2"},
		{"split.count", uint32(1 << 30), "split.count is 1073741824"},
		{"split.no", uint16(1), "part 2 of 1"},
	} {
		t.Run(fmt.Sprint(c.key, "=", c.value), func(t *testing.T) {
			if c.value == nil {
				right.without(c.key).refused(t, c.says)
				return
			}
			right.with(c.key, c.value).refused(t, c.says)
		})
	}
}

// TestHostileGGUFTensors opens files that lack tensors, have others, or the wrong ones.
// TestLargeGGUFHeader: strings that are short enough one by one may still not be a header of any size.
func TestLargeGGUFHeader(t *testing.T) {
	t.Parallel()
	m := smallGGUF(t, "ernie4_5")
	for i := range 9 {
		m = m.with(fmt.Sprintf("text.%d", i), strings.Repeat("x", 4<<20-1))
	}
	m.refused(t, "the header has more than the 33554432 bytes that are accepted")
}

func TestHostileGGUFTensors(t *testing.T) {
	t.Parallel()
	right := smallGGUF(t, "ernie4_5")
	shape := func(dims ...uint64) func(e *ggufEntry) {
		return func(e *ggufEntry) { *e = smallTensor(e.name, ggmlBF16, dims...) }
	}
	rename := func(to string) func(e *ggufEntry) { return func(e *ggufEntry) { e.name = to } }
	right.edit("token_embd.weight", rename("x")).refused(t, "no matrix token_embd.weight")
	right.edit("token_embd.weight", shape(32)).refused(t, "no matrix token_embd.weight")
	right.edit("blk.0.attn_q.weight", rename("blk.0.attn_qkv.weight")).
		refused(t, "model.layers.0.self_attn.q_proj.weight (blk.0.attn_q.weight)", "no such tensor, expected with shape [32 32]")
	right.edit("blk.0.attn_k.weight", shape(16, 32)).
		refused(t, "model.layers.0.self_attn.k_proj.weight", "has shape [32 16], the configuration asks for [16 32]")
	right.edit("blk.0.attn_k.weight", shape(32, 4, 4)).refused(t, "[4 4 32]", "neither a vector's nor a matrix's")
	right.edit("output_norm.weight", shape(32, 1)).refused(t, "output_norm.weight", "[1 32]", "want a vector")
	right.add(smallTensor("blk.0.attn_output.bias", ggmlF32, 32)).refused(t, `"blk.0.attn_output.bias" is no part of the architecture ernie4_5`)
	right.add(smallTensor("blk.1.attn_norm.weight", ggmlF32, 32)).refused(t, `"blk.1.attn_norm.weight" is no part`)
	right.add(smallTensor("rope_freqs.weight", ggmlF32, 7)).refused(t, "7 rope factors")
	right.add(smallTensor("rope_freqs.weight", ggmlF32, 4, 2)).refused(t, "rope_freqs.weight", "want a vector")

	nan := right.edit("blk.0.attn_norm.weight", func(e *ggufEntry) {
		e.data = slices.Clone(e.data)
		binary.LittleEndian.PutUint16(e.data[14:], 0x7FC0)
	}).open(t)
	_, err := nan.Vector(t.Context(), "model.layers.0.input_layernorm.weight")
	wantWords(t, err, "folder/some.gguf", "input_layernorm", "row 0, column 7 is NaN or infinite")

	blocks := right.edit("blk.0.attn_v.weight", func(e *ggufEntry) {
		*e = ggufEntry{name: e.name, dims: []uint64{32, 16}, kind: ggmlQ50, data: make([]byte, 16*22)}
		copy(e.data[9*22:], "\x00\x7C")
		copy(e.data[3*22:], "\xFF\x7B")
	}).open(t)
	const v = "model.layers.0.self_attn.v_proj.weight"
	if _, err := blocks.Rows(t.Context(), v, 4, 9); err != nil {
		t.Errorf("rows between the bad ones: %v", err)
	}
	_, err = blocks.Rows(t.Context(), v, 4, 16)
	wantWords(t, err, "folder/some.gguf", v, "row 9", "NaN or infinite")
	_, err = blocks.Rows(t.Context(), v, 0, 16)
	wantWords(t, err, "folder/some.gguf", v, "row 3", "too large")
	_, err = blocks.Vector(t.Context(), v)
	wantWords(t, err, v, "Q5_0", "want a vector")
}

// readAll reads every tensor of a source, in pieces as internal/model does.
func readAll(t testing.TB, src Source) error {
	for _, s := range Tensors(src.Config()) {
		if s.Vector {
			if _, err := src.Vector(t.Context(), s.Name); err != nil {
				return err
			}
			continue
		}
		info, err := src.Info(s.Name)
		if err != nil {
			return err
		}
		for lo, hi := range Pieces(src, s.Name, info, 8<<20) {
			if _, err := src.Rows(t.Context(), s.Name, lo, hi); err != nil {
				return err
			}
		}
	}
	return nil
}

// mutate damages a file in one of the ways in which files are damaged or forged.
func mutate(r *rand.Rand, file []byte, header int) []byte {
	file = slices.Clone(file)
	le := binary.LittleEndian
	huge := []uint64{1 << 63, 1<<63 - 1, math.MaxUint64, 1 << 40, 1 << 32, 1 << 31, 1 << 20, 0}
	word := func() int { return r.IntN(header - 8) }
	switch r.IntN(6) {
	case 0: // bits
		for range 1 + r.IntN(8) {
			file[r.IntN(header)] ^= 1 << r.IntN(8)
		}
	case 1: // an end that is missing
		file = file[:r.IntN(len(file))]
	case 2: // a length, a count, a dimension or an offset
		le.PutUint64(file[word():], huge[r.IntN(len(huge))])
	case 3: // a type
		le.PutUint32(file[word():], uint32(r.IntN(48)))
	case 4: // one part over another: names and offsets that stand there twice
		n := 8 + r.IntN(64)
		from, to := r.IntN(header-n), r.IntN(header-n)
		copy(file[to:to+n], file[from:from+n])
	case 5: // blocks
		for range 64 {
			file[header+r.IntN(len(file)-header)] = byte(r.IntN(256))
		}
	}
	return file
}

// TestMutatedGGUF damages files in hundreds of ways. They give an error or a model, never a panic, and cost little memory.
func TestMutatedGGUF(t *testing.T) {
	moe := smallMoEGGUF(t)
	q4, err := os.ReadFile("testdata/gguf/ernie-s-q4_0.gguf")
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for i := range 300 {
		r := rand.New(rand.NewPCG(5, uint64(i)))
		file, header := q4, 40<<10
		if i%2 == 1 {
			file, header = moe.file(), len(moe.header())
		}
		bad := mutate(r, file, min(header, len(file)/2))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		src, err := OpenGGUF(t.Context(), "some.gguf", memBlob(bad))
		if err == nil {
			err = readAll(t, src)
		}
		runtime.ReadMemStats(&after)
		if err != nil {
			refused++
			if !strings.Contains(err.Error(), "some.gguf") {
				t.Errorf("file %d: error %q does not name the file", i, err)
			}
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
			t.Errorf("file %d: %d bytes were allocated for a file of %d", i, n, len(bad))
		}
	}
	if refused < 100 {
		t.Errorf("%d of 300 damaged files were refused, want at least 100", refused)
	}
}

func FuzzGGUF(f *testing.F) {
	f.Add(smallGGUF(f, "ernie4_5").file())
	f.Add(smallGGUF(f, "llama").add(smallTensor("rope_freqs.weight", ggmlF32, 8)).file())
	f.Add(smallMoEGGUF(f).file())
	f.Add(ggufMaker{kv: []ggufKV{{"a", []string{"x", "y"}}, {"b", []float32{1}}}}.file())
	f.Fuzz(func(t *testing.T, file []byte) {
		src, err := OpenGGUF(t.Context(), "some.gguf", memBlob(file))
		if err != nil {
			return
		}
		if err := readAll(t, src); err != nil && !strings.Contains(err.Error(), "some.gguf") {
			t.Errorf("error %q does not name the file", err)
		}
	})
}
