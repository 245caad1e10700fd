package kernels

import (
	"fmt"
	"strconv"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
)

// AttentionArgs are the arguments of Attention.
type AttentionArgs struct {
	Rows        int     // most rows, M
	Heads       int     // H
	KVHeads     int     // G, which divides H
	HeadDim     int     // D
	RowStride   int     // elements of a row of QKV, a multiple of 4
	MaxBlocks   int     // entries of a row of BlockTables
	Scale       float32 // of the scores; 0 means D^-0.5
	KV          quant.KVType
	Tokens      gpu.Buffer  // [M] vec4<u32>: id, position, slot, sequence
	BlockTables gpu.Buffer  // [sequences, MaxBlocks] u32
	QKV         gpu.Buffer  // [M, RowStride] f32; the queries are the first H*D elements of a row
	KCache      gpu.Buffer  // [blocks, G, BlockSize, D], by KV
	VCache      gpu.Buffer  // [blocks, G, BlockSize, D], by KV
	Out         gpu.Buffer  // [M, H*D] f32, written
	Step        gpu.Binding // holds the rows that a step really has
}

// attnParams are the Params of paged_attn_prefill.
type attnParams struct {
	Heads, KVHeads, RowStride, MaxBlocks uint32
	Scale                                float32
	Pad0, Pad1, Pad2                     uint32
}

// MaxPositions is the longest context that the attention kernels are made for, twice what conformance tries.
const MaxPositions = 1 << 18

// Attention computes causal attention of each row over the positions 0 to its own of its sequence, which must be in the
// cache already. Rows may belong to any sequences, some to the same; each reads its own context. With Tuning.Deterministic one kernel serves all rows, and a context is cut where its positions say.
func (s *Set) Attention(a AttentionArgs) (Op, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	if a.Scale == 0 {
		a.Scale = invSqrt(a.HeadDim)
	}
	defer s.tried(trial{in: []gpu.Buffer{a.QKV}, out: []gpu.Buffer{a.Out}, again: func() (Op, error) { return s.Attention(a) }})()
	choose, err := s.attnChoice(&a)
	if err != nil {
		return nil, err
	}
	return &op{
		name: "attention", rows: a.Rows, choose: choose.all, long: choose.long,
		traffic: func(rows int) int64 { return int64(rows) * int64(8*a.Heads*a.HeadDim+16) },
	}, nil
}

// attnBuckets are the numbers of rows up to which one kernel serves; more rows have one more.
var attnBuckets = []int{4, 16, 32, 64, 128, 256}

// attnDispatches gives the dispatches of a bucket, for any step and for one with long contexts.
type attnDispatches struct{ all, long func(rows int) []*dispatch }

func (s *Set) attnChoice(a *AttentionArgs) (attnDispatches, error) {
	if s.tuning.BarrierFree {
		all, err := s.attnSerial(a)
		return attnDispatches{all, all}, err
	}
	s.reserve(s.tuning.attentionScratch(ScratchShape{Rows: a.Rows, Heads: a.Heads, HeadDim: a.HeadDim, MaxBlocks: a.MaxBlocks}))
	type choice struct {
		name string
		upTo int
	}
	var choices []choice
	few := s.tuning.decodeMost(a.Rows)
	most := map[string]int{} // rows that a kernel is asked for
	for from, i := 1, 0; from <= a.Rows; i++ {
		top, bucket := a.Rows, "more"
		switch {
		case s.tuning.Deterministic:
			bucket = "all"
		case i < len(attnBuckets):
			top, bucket = min(attnBuckets[i], a.Rows), strconv.Itoa(attnBuckets[i])
		}
		if from <= few { // kernels for single tokens serve no bucket beyond few
			top = min(top, few)
		}
		key := fmt.Sprintf("attention %v %d/%dx%d %s", a.KV, a.Heads, a.KVHeads, a.HeadDim, bucket)
		name := s.choose(key, top, s.attnOptions(a, top, few)...)
		choices = append(choices, choice{name, top})
		most[name] = top
		from = top + 1
	}
	made := map[string]attnDispatches{}
	for name, rows := range most {
		var err error
		if made[name], err = s.attnKernel(a, name, rows); err != nil {
			return attnDispatches{}, err
		}
	}
	chosen := func(rows int) attnDispatches {
		for _, c := range choices {
			if rows <= c.upTo {
				return made[c.name]
			}
		}
		panic("BUG: no kernel for the rows of attention")
	}
	return attnDispatches{
		func(rows int) []*dispatch { return chosen(rows).all(rows) },
		func(rows int) []*dispatch { return chosen(rows).long(rows) },
	}, nil
}

// attnKernel is the variant name for at most rows rows.
func (s *Set) attnKernel(a *AttentionArgs, name string, rows int) (d attnDispatches, err error) {
	switch name {
	case "decode":
		d.all, err = s.attnDecode(a, rows)
	case "prefill":
		d.all, err = s.attnPrefill(a)
	default:
		for _, g := range groupedShapes {
			if g.name == name {
				return s.attnGrouped(a, rows, g)
			}
		}
		panic("BUG: no variant " + name + " of attention")
	}
	d.long = d.all
	return d, err
}

// groupedDim is the largest dimension of heads that paged_attn_grouped serves: for larger ones it would keep more in workgroup memory than
// every device has.
const groupedDim = 128

// attnOptions lists the kernels that can serve rows rows, the default first. paged_attn_decode serves few rows at most.
func (s *Set) attnOptions(a *AttentionArgs, rows, few int) []string {
	switch {
	case a.HeadDim > groupedDim && rows <= few:
		return []string{"decode"}
	case a.HeadDim > groupedDim:
		return []string{"prefill"}
	case s.tuning.Deterministic && a.Heads == a.KVHeads:
		return []string{"decode"}
	case s.tuning.Deterministic: // one shape, whatever the rows
		return []string{a.manyHeads().name}
	case rows > few:
		return a.groupedNames(rows)
	case a.Heads == a.KVHeads:
		return append([]string{"decode"}, a.groupedNames(rows)...)
	}
	return append(a.groupedNames(rows), "decode")
}

func (a *AttentionArgs) check() error {
	c := checker{op: "attention"}
	c.positive("Rows", a.Rows)
	c.positive("Heads", a.Heads)
	c.positive("KVHeads", a.KVHeads)
	c.positive("MaxBlocks", a.MaxBlocks)
	c.headDim(a.HeadDim)
	if c.err != nil {
		return c.err
	}
	c.want(a.Heads%a.KVHeads == 0, "%d heads cannot share %d KV heads", a.Heads, a.KVHeads)
	c.want(a.RowStride >= a.Heads*a.HeadDim && a.RowStride%4 == 0,
		"RowStride is %d, not a multiple of 4 that is at least %d", a.RowStride, a.Heads*a.HeadDim)
	c.want(a.MaxBlocks*BlockSize <= MaxPositions, "contexts of %d blocks are longer than %d positions", a.MaxBlocks, MaxPositions)
	c.buffer("Tokens", a.Tokens, 4*a.Rows)
	c.buffer("BlockTables", a.BlockTables, a.MaxBlocks)
	c.buffer("QKV", a.QKV, a.Rows*a.RowStride)
	c.buffer("Out", a.Out, a.Rows*a.Heads*a.HeadDim)
	c.cache(a.KCache, a.VCache, a.KVHeads, a.HeadDim, a.KV)
	return c.err
}

func (a *AttentionArgs) params() attnParams {
	return attnParams{
		Heads: uint32(a.Heads), KVHeads: uint32(a.KVHeads), RowStride: uint32(a.RowStride), MaxBlocks: uint32(a.MaxBlocks),
		Scale: a.Scale,
	}
}
