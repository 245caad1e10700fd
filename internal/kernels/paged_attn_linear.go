package kernels

import (
	"fmt"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/wgsl"
)

// PagedAttnLinearArgs are the arguments of PagedAttnLinear.
type PagedAttnLinearArgs struct {
	// Attention is what attends, over at most FusedRows rows, none of which sees more than Tuning.ShortContext positions. Tokens has
	// FusedRows elements and was made with gpu.UsageUniform; Out is of no use.
	Attention AttentionArgs
	W         Weight     // [N, H*D], in one part
	Set       int        // query heads of a share
	Each      int        // rows of W that an invocation has a part of: 1, 2 or 4
	Shares    gpu.Buffer // [M, H/Set, N] f32, written
}

type pagedAttnLinearParams struct {
	Heads, KVHeads, RowStride, MaxBlocks uint32
	Scale                                float32
	K, N, Pad0                           uint32
}

const (
	// MaxShares is how many shares a row has at most.
	MaxShares = 8
	// What paged_attn_linear has: positions, invocations, bytes of workgroup memory.
	shortLimit  = 128
	shortWG     = 256
	shortMemory = 10752
)

// ShortContext is the longest context that PagedAttnLinear serves, in positions; 0 if the device has no use for it.
func (s *Set) ShortContext() int {
	if !s.Fuses() || s.limits.MaxInvocations < shortWG || s.limits.MaxWorkgroupMemory < shortMemory {
		return 0
	}
	return min(s.tuning.ShortContext, shortLimit)
}

// shortSets lists how many heads PagedAttnLinear can have in a set, the default first.
func (s *Set) shortSets(a *AttentionArgs, w *Weight) (list []int) {
	_, whole := s.CanFuse(w)
	if s.ShortContext() == 0 || !whole || a.KV == quant.KVI8 || a.HeadDim > 128 {
		return nil
	}
	for _, n := range []int{4, 2, 3, 1} {
		if a.Heads/a.KVHeads%n == 0 && a.Heads/n <= MaxShares && n*a.HeadDim%32 == 0 {
			list = append(list, n)
		}
	}
	return list
}

// shortSlices is into how many slices positions are cut: enough for all invocations, whatever the head dimension.
func shortSlices(headDim int) int {
	slices := 16
	for slices*headDim/2 > shortWG {
		slices /= 2
	}
	return slices
}

// shortRows is how many rows of W a workgroup has.
func shortRows(headDim, set, each int) int { return shortWG / (set * headDim / 32) * each }

// PagedAttnLinear is Attention and Linear over short contexts, cut into sets of heads:
//
//	shares[m, s, j] = dot(attention[m, the heads of set s], w[j, their columns])
func (s *Set) PagedAttnLinear(args PagedAttnLinearArgs) (Op, error) {
	d, err := s.shortDispatch(args)
	if err != nil {
		return nil, err
	}
	a := args.Attention
	return &op{name: "paged_attn_linear", rows: a.Rows, choose: always(d), traffic: func(rows int) int64 {
		return int64(rows) * (4*int64(a.Heads*a.HeadDim+a.Heads/args.Set*args.W.Rows) + args.W.bytes())
	}}, nil
}

func (s *Set) shortDispatch(args PagedAttnLinearArgs) (*dispatch, error) {
	a, w := &args.Attention, &args.W
	if a.Scale == 0 {
		a.Scale = invSqrt(a.HeadDim)
	}
	if err := args.check(s); err != nil {
		return nil, err
	}
	part := w.Parts[0]
	p, err := s.pipeline("paged_attn_linear", &part.Format, wgsl.Consts{
		"WG": shortWG, "HEADS": uint32(args.Set), "EACH": uint32(args.Each), "SLICES": uint32(shortSlices(a.HeadDim)),
		"K": uint32(w.K), "N": uint32(w.Rows), "HEAD_DIM": uint32(a.HeadDim), "KV_TYPE": uint32(a.KV),
	})
	if err != nil {
		return nil, err
	}
	params := pagedAttnLinearParams{
		Heads: uint32(a.Heads), KVHeads: uint32(a.KVHeads), RowStride: uint32(a.RowStride), MaxBlocks: uint32(a.MaxBlocks), Scale: a.Scale,
		K: uint32(w.K), N: uint32(w.Rows),
	}
	ranges := []gpu.Binding{fewTokens(a)}
	for _, b := range []gpu.Buffer{a.BlockTables, a.QKV, a.KCache, a.VCache, part.Data, part.Scales, args.Shares} {
		ranges = append(ranges, gpu.Binding{Buffer: b})
	}
	group, err := s.bindRanges(p, params, a.Step, ranges...)
	if err != nil {
		return nil, err
	}
	return &dispatch{p, group, func(rows int) [3]uint32 {
		return [3]uint32{uint32(ceil(w.Rows, shortRows(a.HeadDim, args.Set, args.Each))), uint32(a.Heads / args.Set), uint32(rows)}
	}}, nil
}

func (args *PagedAttnLinearArgs) check(s *Set) error {
	a := args.Attention
	a.Out = a.QKV // is not written; QKV has room for it
	if err := a.check(); err != nil {
		return err
	}
	c := checker{op: "paged_attn_linear"}
	c.want(a.Rows <= FusedRows, "Rows is %d, more than %d", a.Rows, FusedRows)
	c.weight(&args.W)
	if c.err != nil {
		return c.err
	}
	ok := false
	for _, n := range s.shortSets(&a, &args.W) {
		ok = ok || n == args.Set
	}
	c.want(ok, "%d/%d heads of %d in a cache of %v, in sets of %d, cannot be served with weights of %d parts in %v",
		a.Heads, a.KVHeads, a.HeadDim, a.KV, args.Set, len(args.W.Parts), args.W.Parts[0].Format)
	c.want(args.Each == 1 || args.Each == 2 || args.Each == 4, "Each is %d", args.Each)
	c.want(args.W.K == a.Heads*a.HeadDim, "W has %d columns, the heads %d", args.W.K, a.Heads*a.HeadDim)
	c.buffer("Tokens", a.Tokens, 4*FusedRows)
	c.buffer("Shares", args.Shares, a.Rows*a.Heads/max(args.Set, 1)*args.W.Rows)
	return c.err
}

// ShortBlockArgs are the arguments of ShortBlock.
type ShortBlockArgs struct {
	Attention            AttentionArgs // as in PagedAttnLinearArgs
	O                    Weight        // [N, H*D], in one part
	Norm                 gpu.Buffer    // [N] f32, the weight of the RMS norm before the MLP
	Eps                  float32       // added to the mean square
	GateUp, Down         Weight        // [2*W, N], in one part, and [N, W]
	GateUpBias, DownBias gpu.Buffer    // nil, or f32 for each row
	Act                  gpu.Buffer    // [M, W] f32, overwritten
	Shares               gpu.Buffer    // [M, MaxShares, N] f32, overwritten
	Y                    gpu.Buffer    // [M, N] f32, the residual stream
}

// CanShortBlock says whether ShortBlock can serve attention and its layer.
func (s *Set) CanShortBlock(a *AttentionArgs, o *Weight) bool { return len(s.shortSets(a, o)) > 0 }

// ShortBlock is what follows the queries, keys and values of a layer, over short contexts:
//
//	y += o(attention);  y += down(silu(gate(norm(y))) * up(norm(y)))
//
// The first sum is left in shares, which both of the layers after it add up: one dispatch fewer than AttnLinear and two NormLinear.
func (s *Set) ShortBlock(a ShortBlockArgs) (Op, error) {
	sets := s.shortSets(&a.Attention, &a.O)
	if len(sets) == 0 {
		return nil, fmt.Errorf("kernels: short_block: %d/%d heads of %d cannot be served", a.Attention.Heads, a.Attention.KVHeads, a.Attention.HeadDim)
	}
	defer s.tried(trial{
		in: []gpu.Buffer{a.Attention.QKV}, out: []gpu.Buffer{a.Act, a.Y}, positions: s.ShortContext(),
		again: func() (Op, error) { return s.ShortBlock(a) },
	})()
	set, each := s.chooseShort(&a, sets)
	attend, err := s.shortDispatch(PagedAttnLinearArgs{Attention: a.Attention, W: a.O, Set: set, Each: each, Shares: a.Shares})
	if err != nil {
		return nil, err
	}
	list := []*dispatch{attend}
	rows, shares := a.Attention.Rows, a.Attention.Heads/set
	traffic := int64(4*a.Attention.Heads*a.Attention.HeadDim) + a.O.bytes()
	for _, next := range []NormLinearArgs{
		{
			Rows: rows, X: a.Y, Norm: a.Norm, Eps: a.Eps, W: a.GateUp, Bias: a.GateUpBias, Gated: true, Y: a.Act,
			Shares: a.Shares, XShares: shares, Step: a.Attention.Step,
		},
		{Rows: rows, X: a.Act, W: a.Down, Bias: a.DownBias, Y: a.Y, Add: true, Shares: a.Shares, YShares: shares, Step: a.Attention.Step},
	} {
		linear, err := s.NormLinear(next)
		if err != nil {
			return nil, err
		}
		list = append(list, linear.(*op).choose(rows)...)
		traffic += linear.Traffic(1)
	}
	return &op{name: "short_block", rows: rows, choose: always(list...), traffic: func(rows int) int64 { return int64(rows) * traffic }}, nil
}

// chooseShort picks how many heads make a share, and how many rows an invocation has a part of.
func (s *Set) chooseShort(a *ShortBlockArgs, sets []int) (set, each int) {
	shapes := map[string][2]int{}
	var names []string
	for _, each := range []int{2, 4, 1} {
		for _, set := range sets {
			name := fmt.Sprintf("%d heads %d rows", set, shortRows(a.Attention.HeadDim, set, each))
			shapes[name] = [2]int{set, each}
			names = append(names, name)
		}
	}
	key := fmt.Sprintf("short_block %v %v %d/%dx%d %dx%d", a.Attention.KV, a.O.Parts[0].Format, a.Attention.Heads, a.Attention.KVHeads,
		a.Attention.HeadDim, a.O.K, a.O.Rows)
	shape := shapes[s.choose(key, 1, names...)]
	return shape[0], shape[1]
}
