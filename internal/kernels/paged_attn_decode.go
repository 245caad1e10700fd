package kernels

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/wgsl"
)

type attnDecodeParams struct {
	Heads, KVHeads, RowStride, MaxBlocks uint32
	Scale                                float32
	Parts, Row0, Rows                    uint32
}

const (
	decodePart = 64 // tokens in a partition of the context
	decodeRows = 64 // most rows of one dispatch, which bounds the scratch
	// fixedParts is the number of partitions with Tuning.Deterministic, whatever the step and the longest context: more
	// than short contexts need, which costs little, for partitions without tokens end at once.
	fixedParts = 16
)

// decodeParts is the number of partitions for rows rows: enough workgroups for the device, no more than the context has, and
// few distinct numbers, for each needs bind groups of its own.
func (t Tuning) decodeParts(rows, heads, maxBlocks int) int {
	if t.Deterministic {
		return fixedParts
	}
	most := ceil(maxBlocks*BlockSize, decodePart)
	want := min(ceil(t.Workgroups, rows*heads), most)
	parts := 1
	for parts < want {
		parts *= 4
	}
	return min(parts, most)
}

// decodeScratch is the size of what the partitions of at most rows rows leave for paged_attn_reduce: [rows, heads, parts,
// headDim + 2] f32.
func (t Tuning) decodeScratch(rows, heads, headDim, maxBlocks int) (size int64) {
	for m := 1; m <= rows; m++ {
		size = max(size, 4*int64(min(m, decodeRows))*int64(heads)*int64(t.decodeParts(m, heads, maxBlocks))*int64(headDim+2))
	}
	return size
}

// decodeMost is the largest number of rows for which attention splits the context.
func (t Tuning) decodeMost(rows int) int {
	switch {
	case t.BarrierFree:
		return 0
	case t.Deterministic:
		return rows
	}
	return min(rows, t.PrefillRows-1)
}

// attnDecode splits the context over workgroups and combines what they found, for at most rows rows, decodeRows at a time.
func (s *Set) attnDecode(a *AttentionArgs, rows int) (func(rows int) []*dispatch, error) {
	consts := wgsl.Consts{"HEAD_DIM": uint32(a.HeadDim), "KV_TYPE": uint32(a.KV), "PART": decodePart}
	decode, err := s.pipeline("paged_attn_decode", nil, consts)
	if err != nil {
		return nil, err
	}
	reduce, err := s.pipeline("paged_attn_reduce", nil, wgsl.Consts{"HEAD_DIM": uint32(a.HeadDim)})
	if err != nil {
		return nil, err
	}
	recorded := map[int][]*dispatch{} // by partitions: two for each decodeRows rows
	for m := 1; m <= rows; m++ {
		parts := s.tuning.decodeParts(m, a.Heads, a.MaxBlocks)
		if 2*ceil(m, decodeRows) <= len(recorded[parts]) {
			continue
		}
		row0 := (m - 1) / decodeRows * decodeRows
		here := func(rows int) int { return min(decodeRows, rows-row0) }
		all := s.elementwise(a.Heads*a.HeadDim, elementWG)
		recorded[parts] = append(recorded[parts],
			&dispatch{pipeline: decode, grid: func(rows int) [3]uint32 {
				return [3]uint32{uint32(a.Heads), uint32(parts), uint32(here(rows))}
			}},
			&dispatch{pipeline: reduce, grid: func(rows int) [3]uint32 { return all(here(rows)) }})
	}
	s.later(s.tuning.decodeScratch(rows, a.Heads, a.HeadDim, a.MaxBlocks), func(scratch gpu.Buffer) (err error) {
		for parts, list := range recorded {
			for i := 0; i < len(list); i += 2 {
				row0 := uint32(i / 2 * decodeRows)
				params := attnDecodeParams{
					Heads: uint32(a.Heads), KVHeads: uint32(a.KVHeads), RowStride: uint32(a.RowStride), MaxBlocks: uint32(a.MaxBlocks),
					Scale: a.Scale, Parts: uint32(parts), Row0: row0, Rows: decodeRows,
				}
				list[i].group, err = s.bind(decode, params, a.Step, a.Tokens, a.BlockTables, a.QKV, a.KCache, a.VCache, scratch)
				if err != nil {
					return err
				}
				reduced := reduceParams{Heads: uint32(a.Heads), Parts: uint32(parts), Row0: row0, Rows: decodeRows}
				if list[i+1].group, err = s.bind(reduce, reduced, a.Step, scratch, a.Out); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return func(rows int) []*dispatch {
		return recorded[s.tuning.decodeParts(rows, a.Heads, a.MaxBlocks)][:2*ceil(rows, decodeRows)]
	}, nil
}
