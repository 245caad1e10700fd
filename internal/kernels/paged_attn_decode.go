package kernels

import "github.com/pagelight/pagelight/wgsl"

const (
	decodePart = 64 // tokens in a partition of the context
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

// decodeMost is the largest number of rows for which attention takes paged_attn_decode.
func (t Tuning) decodeMost(rows int) int {
	switch {
	case t.BarrierFree:
		return 0
	case t.Deterministic:
		return rows
	}
	return min(rows, t.PrefillRows-1)
}

// attnDecode splits the context over workgroups and combines what they found, for at most rows rows.
func (s *Set) attnDecode(a *AttentionArgs, rows int) (func(rows int) []*dispatch, error) {
	consts := wgsl.Consts{"HEAD_DIM": uint32(a.HeadDim), "KV_TYPE": uint32(a.KV), "PART": decodePart}
	decode, err := s.pipeline("paged_attn_decode", nil, consts)
	if err != nil {
		return nil, err
	}
	parts := func(rows int) int { return s.tuning.decodeParts(rows, a.Heads, a.MaxBlocks) }
	return s.attnSplit(a, rows, decode, parts, func(rows, parts int) [3]uint32 {
		return [3]uint32{uint32(a.Heads), uint32(parts), uint32(rows)}
	})
}
