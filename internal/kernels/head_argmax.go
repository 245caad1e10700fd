package kernels

import (
	"fmt"

	"github.com/pagelight/pagelight/internal/gpu"
)

// HeadArgmaxArgs are the arguments of HeadArgmax.
type HeadArgmaxArgs struct {
	Rows   int        // most rows that want logits, M, at most FusedRows; each reads the weights again
	Index  gpu.Buffer // [FusedRows] u32, made with gpu.UsageUniform: the row of X that becomes row m of Logits
	X      gpu.Buffer // [any, W.K] f32
	Norm   gpu.Buffer // [W.K] f32, the weight of the RMS norm
	Eps    float32    // added to the mean square
	W      Weight     // [N, K]
	Logits gpu.Buffer // [M, N] f32, written
	Limit  int        // only ids below this one may win; 0 means N
	// IDs and Advance are as in ArgmaxArgs. Without IDs no winner is looked for.
	IDs     gpu.Buffer
	Advance *AdvanceArgs
	Step    gpu.Binding // holds the rows that a step really has
}

type headArgmaxParams struct {
	K, N, Vocab, Offset, Limit, Parts, Part0 uint32
	Eps                                      float32
}

// headBlock is the least number of ids of which head_argmax gives the best one.
const headBlock = 4

// headScratch is the size of the best (f32, u32) of each workgroup.
func headScratch(rows, vocab int) int64 {
	return 8 * int64(rows) * int64(ceil(vocab, headBlock)+maxParts)
}

// maxParts is how many parts a weight has at most that HeadArgmax reads.
const maxParts = 64

// CanHeadArgmax says whether HeadArgmax can read w.
func (s *Set) CanHeadArgmax(w *Weight) bool {
	readable, _ := s.CanFuse(w)
	return readable && len(w.Parts) <= maxParts
}

// HeadArgmax is GatherRows, RMSNorm and Linear for the LM head, and Argmax of the logits if their best ids are wanted.
func (s *Set) HeadArgmax(a HeadArgmaxArgs) (Op, error) {
	if a.Limit == 0 {
		a.Limit = a.W.Rows
	}
	pick := ArgmaxArgs{Rows: a.Rows, Vocab: a.W.Rows, Limit: a.Limit, Logits: a.Logits, IDs: a.IDs, Advance: a.Advance, Step: a.Step}
	if err := a.check(s, &pick); err != nil {
		return nil, err
	}
	defer s.tried(trial{in: []gpu.Buffer{a.X}, out: []gpu.Buffer{a.Logits}, again: func() (Op, error) { return s.HeadArgmax(a) }})()
	var list []*dispatch
	var bindings []func(scratch gpu.Buffer) error
	var shapes []fourVariant
	parts := 0
	for _, part := range a.W.Parts {
		v := s.chooseFour(fmt.Sprintf("head_argmax %v", part.Format), part.Rows, a.W.K, false)
		shapes = append(shapes, v)
		parts += ceil(part.Rows, v.rows())
	}
	part0 := 0
	for i, part := range a.W.Parts {
		v := shapes[i]
		consts := v.consts(a.W.K)
		consts["N"] = uint32(part.Rows)
		p, err := s.pipeline("head_argmax", &part.Format, consts)
		if err != nil {
			return nil, err
		}
		d := &dispatch{pipeline: p, grid: s.fourGrid(part.Rows, v)}
		params := headArgmaxParams{
			K: uint32(a.W.K), N: uint32(part.Rows), Vocab: uint32(a.W.Rows), Offset: uint32(part.Row0), Limit: uint32(a.Limit),
			Parts: uint32(parts), Part0: uint32(part0), Eps: a.Eps,
		}
		part0 += ceil(part.Rows, v.rows())
		list = append(list, d)
		bindings = append(bindings, func(scratch gpu.Buffer) (err error) {
			d.group, err = s.bindRanges(p, params, a.Step, gpu.Binding{Buffer: a.Index, Size: 4 * FusedRows}, gpu.Binding{Buffer: a.X},
				gpu.Binding{Buffer: a.Norm}, gpu.Binding{Buffer: part.Data}, gpu.Binding{Buffer: part.Scales}, gpu.Binding{Buffer: a.Logits},
				gpu.Binding{Buffer: scratch})
			return err
		})
	}
	if a.IDs != nil {
		p, err := s.argmaxReduce(&pick)
		if err != nil {
			return nil, err
		}
		d := &dispatch{pipeline: p, grid: s.rowEach}
		list = append(list, d)
		bindings = append(bindings, func(scratch gpu.Buffer) (err error) {
			d.group, err = s.bindArgmaxReduce(p, &pick, parts, scratch)
			return err
		})
	}
	s.later(headScratch(a.Rows, a.W.Rows), func(scratch gpu.Buffer) error {
		for _, bind := range bindings {
			if err := bind(scratch); err != nil {
				return err
			}
		}
		return nil
	})
	return &op{name: "head_argmax", rows: a.Rows, choose: always(list...), traffic: func(rows int) int64 {
		return int64(rows) * (4*int64(a.W.K+a.W.Rows) + a.W.bytes())
	}}, nil
}

func (a *HeadArgmaxArgs) check(s *Set, pick *ArgmaxArgs) error {
	c := checker{op: "head_argmax"}
	c.positive("Rows", a.Rows)
	c.want(a.Rows <= FusedRows, "Rows is %d, more than %d", a.Rows, FusedRows)
	c.weight(&a.W)
	if c.err != nil {
		return c.err
	}
	c.want(s.CanHeadArgmax(&a.W), "weights of %d columns and %d parts in %v are not read 32 at a time", a.W.K, len(a.W.Parts), a.W.Parts[0].Format)
	c.want(a.Limit >= 1 && a.Limit <= a.W.Rows, "Limit is %d of %d", a.Limit, a.W.Rows)
	c.buffer("Index", a.Index, FusedRows)
	c.buffer("X", a.X, a.W.K)
	c.buffer("Norm", a.Norm, a.W.K)
	c.buffer("Logits", a.Logits, a.Rows*a.W.Rows)
	if a.IDs != nil {
		c.buffer("IDs", a.IDs, a.Rows)
	}
	if a.Advance != nil {
		c.want(a.IDs != nil, "Advance without IDs")
		c.advance(pick.next())
	}
	return c.err
}
