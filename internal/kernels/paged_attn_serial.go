package kernels

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/wgsl"
)

const (
	attnSerialWG = 8 // invocations per workgroup of the serial attention kernels

	// serialRounds bounds the rounds of all loops of one invocation together: Mesa 22 ends them, without a word, after 65,535.
	serialRounds = 60000
)

// serialPart is the most positions that one invocation walks over: for each four of them it takes one round, and one for
// each 8 elements of K and of V.
func (t Tuning) serialPart(headDim int) int {
	if t.SerialPart > 0 {
		return t.SerialPart
	}
	part := BlockSize
	for 2*part/4*(1+2*headDim/8) <= serialRounds {
		part *= 2
	}
	return part
}

// serialParts is the number of partitions of the longest context; 1 needs no reduction.
func (t Tuning) serialParts(headDim, maxBlocks int) int {
	return ceil(maxBlocks*BlockSize, t.serialPart(headDim))
}

// attnSerialScratch is the size of what the partitions of the serial kernel leave for paged_attn_reduce.
func (t Tuning) attnSerialScratch(rows, heads, headDim, maxBlocks int) int64 {
	parts := t.serialParts(headDim, maxBlocks)
	if !t.BarrierFree || parts == 1 {
		return 0
	}
	return 4 * int64(min(rows, decodeRows)) * int64(heads) * int64(parts) * int64(headDim+2)
}

// attnSerial has one invocation for a token and head, and where the longest context is too long for one, for each partition.
func (s *Set) attnSerial(a *AttentionArgs) (func(rows int) []*dispatch, error) {
	if s.tuning.serialParts(a.HeadDim, a.MaxBlocks) > 1 {
		return s.attnSerialParts(a)
	}
	p, err := s.pipeline("paged_attn_serial", nil, wgsl.Consts{"HEAD_DIM": uint32(a.HeadDim), "KV_TYPE": uint32(a.KV)})
	if err != nil {
		return nil, err
	}
	group, err := s.bind(p, a.params(), a.Step, a.Tokens, a.BlockTables, a.QKV, a.KCache, a.VCache, a.Out)
	if err != nil {
		return nil, err
	}
	return always(&dispatch{p, group, func(rows int) [3]uint32 {
		return gpu.Grid(ceil(rows*a.Heads, attnSerialWG), 1, s.limits.MaxWorkgroupsPerDim)
	}}), nil
}

// attnSerialParts cuts the context, decodeRows rows at a time, which bounds the scratch.
func (s *Set) attnSerialParts(a *AttentionArgs) (func(rows int) []*dispatch, error) {
	parts := s.tuning.serialParts(a.HeadDim, a.MaxBlocks)
	serial, err := s.pipeline("paged_attn_serial_part", nil, wgsl.Consts{
		"HEAD_DIM": uint32(a.HeadDim), "KV_TYPE": uint32(a.KV), "PART": uint32(s.tuning.serialPart(a.HeadDim)),
	})
	if err != nil {
		return nil, err
	}
	reduce, err := s.pipeline("paged_attn_reduce", nil, wgsl.Consts{"HEAD_DIM": uint32(a.HeadDim)})
	if err != nil {
		return nil, err
	}
	all := s.elementwise(a.Heads*a.HeadDim, elementWG)
	var list []*dispatch // two for each decodeRows rows
	for row0 := 0; row0 < a.Rows; row0 += decodeRows {
		here := func(rows int) int { return min(decodeRows, rows-row0) }
		list = append(list,
			&dispatch{pipeline: serial, grid: func(rows int) [3]uint32 {
				return gpu.Grid(ceil(here(rows)*a.Heads*parts, attnSerialWG), 1, s.limits.MaxWorkgroupsPerDim)
			}},
			&dispatch{pipeline: reduce, grid: func(rows int) [3]uint32 { return all(here(rows)) }})
	}
	s.later(s.tuning.attnSerialScratch(a.Rows, a.Heads, a.HeadDim, a.MaxBlocks), func(scratch gpu.Buffer) (err error) {
		for i := 0; i < len(list); i += 2 {
			row0 := uint32(i / 2 * decodeRows)
			params := attnDecodeParams{
				Heads: uint32(a.Heads), KVHeads: uint32(a.KVHeads), RowStride: uint32(a.RowStride), MaxBlocks: uint32(a.MaxBlocks),
				Scale: a.Scale, Parts: uint32(parts), Row0: row0, Rows: decodeRows,
			}
			list[i].group, err = s.bind(serial, params, a.Step, a.Tokens, a.BlockTables, a.QKV, a.KCache, a.VCache, scratch)
			if err != nil {
				return err
			}
			reduced := reduceParams{Heads: uint32(a.Heads), Parts: uint32(parts), Row0: row0, Rows: decodeRows}
			if list[i+1].group, err = s.bind(reduce, reduced, a.Step, scratch, a.Out); err != nil {
				return err
			}
		}
		return nil
	})
	return func(rows int) []*dispatch { return list[:2*ceil(rows, decodeRows)] }, nil
}
