package kernels

import (
	"fmt"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/wgsl"
)

// AttnLinearArgs are the arguments of AttnLinear.
type AttnLinearArgs struct {
	// Attention is what attends, over at most FusedRows rows. Tokens has FusedRows elements and was made with gpu.UsageUniform; Out
	// is written where Long is set, and else is of no use.
	Attention AttentionArgs
	W         Weight     // [N, H*D]
	Y         gpu.Buffer // [M, N] f32, which is added to
	// Long cuts contexts into more partitions, and has a kernel of its own combine them. Both ways serve contexts of every length;
	// this one is faster from LongContext positions on.
	Long bool
}

type attnLinearParams struct {
	K, N, YStride, YOffset, Heads uint32
	Eps                           float32
	Pad0, Pad1                    uint32
}

// Partitions of a context in AttnLinear, as attn_linear and paged_attn_join combine them.
const (
	fewParts  = 4
	joinParts = 32
)

// LongContext is the number of positions from which on AttnLinear is faster with Long.
const LongContext = 2*fewParts*decodePart + 1

const attnWG = 256 // invocations per workgroup of paged_attn_few and paged_attn_join

// fewHeads is how many query heads a workgroup of paged_attn_few serves, and into how many slices it cuts their positions.
func fewHeads(a *AttentionArgs) (heads, slices int) {
	heads = 1
	if a.Heads/a.KVHeads%2 == 0 {
		heads = 2
	}
	for slices = decodePart; slices > attnWG/heads/(a.HeadDim/8); slices /= 2 {
	}
	return heads, slices
}

// AttnLinear is Attention and Linear with Add, for few rows.
func (s *Set) AttnLinear(args AttnLinearArgs) (Op, error) {
	a := &args.Attention
	if a.Scale == 0 {
		a.Scale = invSqrt(a.HeadDim)
	}
	if err := args.check(s); err != nil {
		return nil, err
	}
	defer s.tried(trial{in: []gpu.Buffer{a.QKV}, out: []gpu.Buffer{args.Y}, again: func() (Op, error) { return s.AttnLinear(args) }})()
	parts := fewParts
	if args.Long {
		parts = joinParts
	}
	heads, slices := fewHeads(a)
	consts := wgsl.Consts{
		"WG": attnWG, "PART": decodePart, "HEADS": uint32(heads), "SLICES": uint32(slices), "HEAD_DIM": uint32(a.HeadDim), "KV_TYPE": uint32(a.KV),
	}
	names := []string{"plain"}
	segment := s.segment(attnWG)
	if segment > 0 {
		names = append(names, subgroups)
	}
	if s.choose(fmt.Sprintf("paged_attn_few %v %d/%dx%d", a.KV, a.Heads, a.KVHeads, a.HeadDim), 1, names...) == subgroups {
		consts["SEGMENT"] = uint32(segment)
	}
	few, err := s.pipeline("paged_attn_few", nil, consts)
	if err != nil {
		return nil, err
	}
	attend := &dispatch{pipeline: few, grid: func(rows int) [3]uint32 {
		return [3]uint32{uint32(a.Heads / heads), uint32(parts), uint32(rows)}
	}}
	bindFew := func(scratch gpu.Buffer) (err error) {
		attend.group, err = s.bindRanges(few, a.splitParams(parts, 0, a.Rows), a.Step, fewTokens(a), gpu.Binding{Buffer: a.BlockTables},
			gpu.Binding{Buffer: a.QKV}, gpu.Binding{Buffer: a.KCache}, gpu.Binding{Buffer: a.VCache}, gpu.Binding{Buffer: scratch})
		return err
	}
	size := int64(a.Rows) * int64(splitRow(a.Heads, a.HeadDim, parts))
	var rest []*dispatch
	var bindings []func(scratch gpu.Buffer) error
	if args.Long {
		rest, bindings, err = s.attnJoin(&args)
	} else {
		rest, bindings, err = s.attnProject(&args)
	}
	if err != nil {
		return nil, err
	}
	s.later(size, func(scratch gpu.Buffer) error {
		for _, bind := range append(bindings, bindFew) {
			if err := bind(scratch); err != nil {
				return err
			}
		}
		return nil
	})
	list := append([]*dispatch{attend}, rest...)
	return &op{name: "attn_linear", rows: a.Rows, choose: always(list...), traffic: func(rows int) int64 {
		return int64(rows) * (4*int64(a.Heads*a.HeadDim+args.W.Rows) + args.W.bytes())
	}}, nil
}

// fewTokens is the tokens of a step of few rows as a uniform.
func fewTokens(a *AttentionArgs) gpu.Binding {
	return gpu.Binding{Buffer: a.Tokens, Size: 16 * FusedRows}
}

// attnProject makes the dispatches of attn_linear, and what binds each.
func (s *Set) attnProject(args *AttnLinearArgs) (list []*dispatch, bindings []func(gpu.Buffer) error, err error) {
	a, w := &args.Attention, &args.W
	for _, part := range w.Parts {
		v := s.chooseFour(fmt.Sprintf("attn_linear %v", part.Format), part.Rows, w.K, true)
		consts := v.consts(w.K)
		consts["N"], consts["HEAD_DIM"], consts["PARTS"], consts["PART"] = uint32(part.Rows), uint32(a.HeadDim), fewParts, decodePart
		p, err := s.pipeline("attn_linear", &part.Format, consts)
		if err != nil {
			return nil, nil, err
		}
		d := &dispatch{pipeline: p, grid: s.fourGrid(part.Rows, v)}
		params := attnLinearParams{
			K: uint32(w.K), N: uint32(part.Rows), YStride: uint32(w.Rows), YOffset: uint32(part.Row0), Heads: uint32(a.Heads),
		}
		bindings = append(bindings, func(scratch gpu.Buffer) (err error) {
			d.group, err = s.bindRanges(p, params, a.Step, fewTokens(a), gpu.Binding{Buffer: scratch}, gpu.Binding{Buffer: part.Data},
				gpu.Binding{Buffer: part.Scales}, gpu.Binding{Buffer: args.Y})
			return err
		})
		list = append(list, d)
	}
	return list, bindings, nil
}

// attnJoin makes the dispatches of paged_attn_join and of NormLinear, and what binds the first.
func (s *Set) attnJoin(args *AttnLinearArgs) (list []*dispatch, bindings []func(gpu.Buffer) error, err error) {
	a := &args.Attention
	p, err := s.pipeline("paged_attn_join", nil, wgsl.Consts{"WG": attnWG, "HEAD_DIM": uint32(a.HeadDim), "PART": decodePart})
	if err != nil {
		return nil, nil, err
	}
	join := &dispatch{pipeline: p, grid: func(rows int) [3]uint32 { return [3]uint32{uint32(a.Heads), uint32(rows), 1} }}
	bind := func(scratch gpu.Buffer) (err error) {
		params := reduceParams{Heads: uint32(a.Heads), Parts: joinParts, Rows: uint32(a.Rows)}
		join.group, err = s.bindRanges(p, params, a.Step, fewTokens(a), gpu.Binding{Buffer: scratch}, gpu.Binding{Buffer: a.Out})
		return err
	}
	linear, err := s.NormLinear(NormLinearArgs{Rows: a.Rows, X: a.Out, W: args.W, Y: args.Y, Add: true, Step: a.Step})
	if err != nil {
		return nil, nil, err
	}
	return append([]*dispatch{join}, linear.(*op).choose(a.Rows)...), []func(gpu.Buffer) error{bind}, nil
}

func (args *AttnLinearArgs) check(s *Set) error {
	a := args.Attention
	if !args.Long {
		a.Out = a.QKV // is not written; QKV has room for it
	}
	if err := a.check(); err != nil {
		return err
	}
	c := checker{op: "attn_linear"}
	c.want(a.Rows <= FusedRows, "Rows is %d, more than %d", a.Rows, FusedRows)
	c.weight(&args.W)
	if c.err != nil {
		return c.err
	}
	parts, _ := s.CanFuse(&args.W)
	c.want(parts, "weights of %d columns in %v are not read 32 at a time", args.W.K, args.W.Parts[0].Format)
	c.want(args.W.K == a.Heads*a.HeadDim, "W has %d columns, the heads %d", args.W.K, a.Heads*a.HeadDim)
	c.buffer("Tokens", a.Tokens, 4*FusedRows)
	c.buffer("Y", args.Y, a.Rows*args.W.Rows)
	return c.err
}
