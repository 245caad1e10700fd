package weights

import (
	"fmt"
	"io"
	"runtime"
	"testing"
)

// hollowBlob is a file of which only the beginning is there; the rest reads as zeros.
type hollowBlob struct {
	head []byte
	size int64
	read int64 // bytes that were asked for
}

func (b *hollowBlob) Size() int64 { return b.size }

func (b *hollowBlob) ReadAt(p []byte, off int64) (int, error) {
	n := int(min(int64(len(p)), max(0, b.size-off)))
	b.read += int64(n)
	clear(p[:n])
	if off < int64(len(b.head)) {
		copy(p[:n], b.head[off:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// largeGGUF is a file with ERNIE-4.5's vocabulary and widths, and some layers.
func largeGGUF(layers int, kind ggmlType) (header ggufMaker, size int64) {
	const hidden, ffn, vocab, q, kv = 1024, 3072, 103424, 2048, 256
	tokens, scores, types := make([]string, vocab), make([]float32, vocab), make([]int32, vocab)
	for i := range tokens {
		tokens[i], scores[i], types[i] = fmt.Sprintf("▁token%d", i), float32(-i), 1
	}
	tokens[0], types[0] = "<unk>", 2
	tokens[1], types[1] = "<s>", 3
	tokens[2], types[2] = "</s>", 3
	for i := range 256 {
		tokens[3+i], types[3+i] = fmt.Sprintf("<0x%02X>", i), 6
	}
	m := ggufMaker{kv: []ggufKV{
		{"general.architecture", "ernie4_5"},
		{"ernie4_5.block_count", uint32(layers)},
		{"ernie4_5.context_length", uint32(4096)},
		{"ernie4_5.embedding_length", uint32(hidden)},
		{"ernie4_5.feed_forward_length", uint32(ffn)},
		{"ernie4_5.attention.head_count", uint32(16)},
		{"ernie4_5.attention.head_count_kv", uint32(2)},
		{"ernie4_5.attention.key_length", uint32(128)},
		{"ernie4_5.attention.layer_norm_rms_epsilon", float32(1e-5)},
		{"tokenizer.ggml.model", "llama"},
		{"tokenizer.ggml.tokens", tokens},
		{"tokenizer.ggml.scores", scores},
		{"tokenizer.ggml.token_type", types},
		{"tokenizer.ggml.unknown_token_id", uint32(0)},
		{"tokenizer.ggml.bos_token_id", uint32(1)},
		{"tokenizer.ggml.eos_token_id", uint32(2)},
		{"tokenizer.ggml.add_space_prefix", false},
		{"tokenizer.ggml.add_bos_token", false},
	}}
	add := func(name string, kind ggmlType, dims ...uint64) {
		offset := uint64(size)
		l := ggmlLayouts[kind]
		n := int64(l.bytes)
		for _, d := range dims {
			n *= int64(d)
		}
		size += (n/int64(l.values) + 31) &^ 31
		m.tensors = append(m.tensors, ggufEntry{name: name, dims: dims, kind: kind, offset: &offset})
	}
	add("token_embd.weight", kind, hidden, vocab)
	for l := range layers {
		p := fmt.Sprintf("blk.%d.", l)
		add(p+"attn_norm.weight", ggmlF32, hidden)
		add(p+"attn_q.weight", kind, hidden, q)
		add(p+"attn_k.weight", kind, hidden, kv)
		add(p+"attn_v.weight", kind, hidden, kv)
		add(p+"attn_output.weight", kind, q, hidden)
		add(p+"ffn_norm.weight", ggmlF32, hidden)
		add(p+"ffn_gate.weight", kind, hidden, ffn)
		add(p+"ffn_up.weight", kind, hidden, ffn)
		add(p+"ffn_down.weight", kind, ffn, hidden)
	}
	add("output_norm.weight", ggmlF32, hidden)
	return m, size
}

// TestGGUFLoadsInBoundedMemory reads all of a large file as it is loaded. What was ever allocated meanwhile, freed or not, stays
// under 64 MiB plus a quarter of what the weights take on the device. It does not run in parallel, so that nothing else allocates.
func TestGGUFLoadsInBoundedMemory(t *testing.T) {
	m, size := largeGGUF(2, ggmlQ40)
	head := m.header()
	blob := &hollowBlob{head: head, size: int64(m.up(uint64(len(head)))) + size}
	var before, opened, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	src, err := OpenGGUF(t.Context(), "large.gguf", blob)
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&opened)
	if limit := int64(len(head)) + ggufReadAhead; blob.read > limit {
		t.Errorf("opening read %d bytes; the header has %d", blob.read, len(head))
	}
	if err := readAll(t, src); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	limit := 64<<20 + uint64(src.Bytes())/4
	opening, reading := opened.TotalAlloc-before.TotalAlloc, after.TotalAlloc-opened.TotalAlloc
	t.Logf("%d MB of weights; allocated %d MB to open, %d MB to read, %d MB allowed", src.Bytes()>>20, opening>>20, reading>>20, limit>>20)
	if opening+reading > limit {
		t.Errorf("allocated %d bytes, at most %d allowed", opening+reading, limit)
	}
}
