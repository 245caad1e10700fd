package kernels

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/wgsl"
)

const (
	// serialHeads is the most query heads of an invocation. More would share more loads, but compilers of software adapters
	// unroll the loops over the sums and then take seconds.
	serialHeads = 3
	// serialPart is how many positions an invocation walks through at most. Twice as many of the largest heads would exceed the
	// rounds that Mesa 22 lets all loops of an invocation have together: 65,535. It also gives threads something to share.
	serialPart = 2048
)

// serialParts is how many positions a partition of the serial attention has, and how many partitions the longest context; 1
// needs no reduction.
func (t Tuning) serialParts(maxBlocks int) (part, parts int) {
	part = t.SerialPart
	if part == 0 {
		part = serialPart
	}
	return part, ceil(maxBlocks*BlockSize, part)
}

// attnSerial has one invocation for a token, a partition of its context and some query heads. Contexts of one partition need no
// more than that; longer ones are put together by paged_attn_reduce, with the same bits where there is one partition only.
func (s *Set) attnSerial(a *AttentionArgs) (func(rows int) []*dispatch, error) {
	part, parts := s.tuning.serialParts(a.MaxBlocks)
	group := a.Heads / a.KVHeads
	heads := ceil(group, ceil(group, serialHeads)) // of an invocation: as few as do not take more invocations
	units := a.KVHeads * ceil(group, heads)
	p, err := s.pipeline("paged_attn_serial", nil, wgsl.Consts{
		"HEAD_DIM": uint32(a.HeadDim), "KV_TYPE": uint32(a.KV), "HEADS": uint32(heads), "SPLIT": bit(parts > 1), "PART": uint32(part),
	})
	if err != nil {
		return nil, err
	}
	grid := func(rows, parts int) [3]uint32 {
		return gpu.Grid(ceil(rows*units, serialWG), parts, s.limits.MaxWorkgroupsPerDim)
	}
	if parts > 1 {
		return s.attnSplit(a, a.Rows, p, func(int) int { return parts }, grid)
	}
	bound, err := s.bind(p, a.splitParams(1, 0, a.Rows), a.Step, a.Tokens, a.BlockTables, a.QKV, a.KCache, a.VCache, a.Out)
	if err != nil {
		return nil, err
	}
	return always(&dispatch{p, bound, func(rows int) [3]uint32 { return grid(rows, 1) }}), nil
}
