package weights

import (
	"errors"
	"fmt"
	"iter"
	"strconv"
)

// Shape is a tensor that a model needs: a matrix [Rows, K], or a vector of K.
type Shape struct {
	Name    string
	Rows, K int
	Vector  bool
	Router  bool // the matrix that chooses experts
}

// String is the shape as checkpoints write it.
func (s Shape) String() string {
	if s.Vector {
		return fmt.Sprintf("[%d]", s.K)
	}
	return fmt.Sprintf("[%d %d]", s.Rows, s.K)
}

// Tensors lists every tensor that a model has, in the order in which it is loaded: embedding, layers, last norm, LM head when
// it has its own.
func Tensors(c *Config) []Shape {
	l := lister{c: c}
	l.matrix("model.embed_tokens.weight", c.VocabSize, c.HiddenSize)
	for i := range c.NumLayers {
		p := "model.layers." + strconv.Itoa(i) + "."
		l.attention(p)
		l.vector(p+"post_attention_layernorm.weight", c.HiddenSize)
		if c.Sparse(i) {
			l.experts(p + "mlp.")
		} else {
			l.mlp(p+"mlp.", c.IntermediateSize)
		}
	}
	l.vector("model.norm.weight", c.HiddenSize)
	if !c.TieEmbeddings {
		l.matrix("lm_head.weight", c.VocabSize, c.HiddenSize)
	}
	return l.list
}

// lister collects the tensors of a model.
type lister struct {
	c    *Config
	list []Shape
}

func (l *lister) vector(name string, n int) {
	l.list = append(l.list, Shape{Name: name, Rows: 1, K: n, Vector: true})
}

func (l *lister) matrix(name string, rows, k int) {
	l.list = append(l.list, Shape{Name: name, Rows: rows, K: k})
}

func (l *lister) linear(name string, rows, k int, bias bool) {
	l.matrix(name+".weight", rows, k)
	if bias {
		l.vector(name+".bias", rows)
	}
}

func (l *lister) attention(p string) {
	c := l.c
	q, kv := c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim
	l.vector(p+"input_layernorm.weight", c.HiddenSize)
	l.linear(p+"self_attn.q_proj", q, c.HiddenSize, c.UseBias || c.QKVBias)
	l.linear(p+"self_attn.k_proj", kv, c.HiddenSize, c.UseBias || c.QKVBias)
	l.linear(p+"self_attn.v_proj", kv, c.HiddenSize, c.UseBias || c.QKVBias)
	if c.QKNorm {
		l.vector(p+"self_attn.q_norm.weight", c.HeadDim)
		l.vector(p+"self_attn.k_norm.weight", c.HeadDim)
	}
	l.linear(p+"self_attn.o_proj", c.HiddenSize, q, c.UseBias)
}

func (l *lister) mlp(p string, size int) {
	l.linear(p+"gate_proj", size, l.c.HiddenSize, l.c.UseBias)
	l.linear(p+"up_proj", size, l.c.HiddenSize, l.c.UseBias)
	l.linear(p+"down_proj", l.c.HiddenSize, size, l.c.UseBias)
}

// experts are those of one layer: the router, then all gates, all ups and all downs, as they lie together on the device.
func (l *lister) experts(p string) {
	m, hidden := l.c.MoE, l.c.HiddenSize
	l.list = append(l.list, Shape{Name: p + "gate.weight", Rows: m.NumExperts, K: hidden, Router: true})
	l.vector(p+"moe_statics.e_score_correction_bias", m.NumExperts)
	for _, part := range []struct {
		name    string
		rows, k int
	}{{"gate_proj", m.ExpertSize, hidden}, {"up_proj", m.ExpertSize, hidden}, {"down_proj", hidden, m.ExpertSize}} {
		for e := range m.NumExperts {
			l.matrix(p+"experts."+strconv.Itoa(e)+"."+part.name+".weight", part.rows, part.k)
		}
	}
	if m.SharedExpertSize > 0 {
		l.mlp(p+"shared_experts.", m.SharedExpertSize)
	}
}

// Parameters counts the weights of a model, and those that take part in computing one token: all but the experts that it is
// not sent to.
func Parameters(c *Config) (all, active int64) {
	for _, t := range Tensors(c) {
		all += int64(t.Rows) * int64(t.K)
	}
	active = all
	for i := range c.NumLayers {
		if c.Sparse(i) {
			active -= 3 * int64(c.MoE.NumExperts-c.MoE.TopK) * int64(c.MoE.ExpertSize) * int64(c.HiddenSize)
		}
	}
	return all, active
}

// maxReported is how many faulty tensors an error lists.
const maxReported = 4

// Check says whether every tensor that the configuration asks for exists with the right shape and in a format that can be
// read. All loaders call it when they open a model, so that a faulty one is refused before anything is downloaded or
// uploaded. The error names the first few faulty tensors and counts the others.
func Check(src Source) error {
	var errs []error
	for _, want := range Tensors(src.Config()) {
		if err := checkTensor(src, want); err != nil {
			errs = append(errs, err)
		}
	}
	if more := len(errs) - maxReported; more > 0 {
		errs = append(errs[:maxReported], fmt.Errorf("weights: and %d tensors more", more))
	}
	return errors.Join(errs...)
}

func checkTensor(src Source, want Shape) error {
	info, err := src.Info(want.Name)
	if errors.Is(err, ErrNoTensor) {
		return fmt.Errorf("%w, expected with shape %s", err, want)
	}
	if err != nil {
		return err
	}
	if info.Rows == want.Rows && info.K == want.K {
		return nil
	}
	where := ""
	if l, ok := src.(interface{ where(name string) string }); ok {
		where = l.where(want.Name) + ": "
	}
	found := Shape{Rows: info.Rows, K: info.K, Vector: info.Rows == 1 && want.Vector}
	return fmt.Errorf("weights: %stensor %q has shape %s, the configuration asks for %s", where, want.Name, found, want)
}

// runner is a source whose tensors lie in runs of rows that can be had without copying.
type runner interface {
	// runEnd is the row after the last one of the run that row lo is in.
	runEnd(name string, lo int) int
}

// Pieces cuts a tensor into runs of rows to read one after the other: at most maxBytes of data each, at least one row, and
// never across the end of a shard, so that no piece has to be put together in memory.
func Pieces(src Source, name string, info Info, maxBytes int64) iter.Seq2[int, int] {
	return func(yield func(lo, hi int) bool) {
		step := int(max(1, min(int64(info.Rows), maxBytes/int64(max(1, info.Format.RowBytes(info.K))))))
		r, _ := src.(runner)
		for lo := 0; lo < info.Rows; {
			hi := min(lo+step, info.Rows)
			if r != nil {
				hi = min(hi, r.runEnd(name, lo))
			}
			if !yield(lo, hi) {
				return
			}
			lo = hi
		}
	}
}

// Load gives the segment's bytes: as they are when they lie in memory, else read into buf, which grows as needed.
func (s Segment) Load(buf []byte) ([]byte, error) {
	if s.Blob == nil {
		return s.Bytes, nil
	}
	if s.Size < 0 || s.Offset < 0 || s.Size > s.Blob.Size()-s.Offset {
		return nil, fmt.Errorf("weights: bytes %d to %d of a blob of %d", s.Offset, s.Offset+s.Size, s.Blob.Size())
	}
	if int64(cap(buf)) < s.Size {
		buf = make([]byte, s.Size)
	}
	buf = buf[:s.Size]
	if err := readAt(s.Blob, buf, s.Offset); err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	return buf, nil
}
