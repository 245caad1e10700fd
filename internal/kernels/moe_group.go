package kernels

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/wgsl"
)

// GroupExpertsArgs are the arguments of GroupExperts.
type GroupExpertsArgs struct {
	Rows    int // most rows, M
	Experts int
	TopK    int
	Chosen  gpu.Buffer  // [M, TopK] u32
	Groups  gpu.Buffer  // [GroupWords] u32, written where ExpertLinear reads it
	Step    gpu.Binding // holds the rows that a step really has
}

type groupParams struct{ Experts, Slots, Tiles, Pad0 uint32 }

// Pairs of a tile of moe_matmul and of moe_serial.
const (
	matmulPairs = 32
	serialPairs = 4
)

// tilePairs is the number of pairs of a tile.
func (t Tuning) tilePairs() int {
	if t.BarrierFree {
		return serialPairs
	}
	return matmulPairs
}

// groupTiles is the most tiles of tile pairs that the pairs of rows rows take: each expert that has any wastes less than one.
func groupTiles(rows, experts, topK, tile int) int {
	pairs := rows * topK
	return (pairs + min(pairs, experts)*(tile-1)) / tile
}

// GroupWords is how many words GroupExpertsArgs.Groups needs for rows rows, with any tuning.
func GroupWords(rows, experts, topK int) int {
	words := func(tile int) int { return groupTiles(rows, experts, topK, tile) * (1 + tile) }
	return max(words(matmulPairs), words(serialPairs))
}

// grouped says whether ExpertLinear groups the pairs of rows rows by expert, so that it reads an expert's weights once for
// several of them.
func (t Tuning) grouped(rows, experts, topK int) bool {
	return rows*topK >= t.GroupPairs*experts && (t.BarrierFree || !t.Deterministic)
}

// GroupExperts sorts the pairs of a row and an expert by expert, for steps of as many rows that ExpertLinear wants it; for
// others it does nothing.
func (s *Set) GroupExperts(a GroupExpertsArgs) (Op, error) {
	c := checker{op: "moe_group"}
	c.positive("Rows", a.Rows)
	c.experts(a.Experts, a.TopK)
	c.buffer("Chosen", a.Chosen, a.Rows*a.TopK)
	c.buffer("Groups", a.Groups, GroupWords(a.Rows, a.Experts, a.TopK))
	if c.err != nil {
		return nil, c.err
	}
	o := &op{
		name: "moe_group", rows: a.Rows, choose: func(int) []*dispatch { return nil },
		traffic: func(rows int) int64 { return 12 * int64(rows) * int64(a.TopK) },
	}
	if !s.tuning.grouped(a.Rows, a.Experts, a.TopK) {
		return o, nil
	}
	tile := s.tuning.tilePairs()
	p, err := s.pipeline("moe_group", nil, wgsl.Consts{"TILE": uint32(tile)})
	if err != nil {
		return nil, err
	}
	params := groupParams{Experts: uint32(a.Experts), Slots: uint32(a.TopK), Tiles: uint32(groupTiles(a.Rows, a.Experts, a.TopK, tile))}
	group, err := s.bind(p, params, a.Step, a.Chosen, a.Groups)
	if err != nil {
		return nil, err
	}
	list := []*dispatch{{p, group, func(int) [3]uint32 { return [3]uint32{1, 1, 1} }}}
	o.choose = func(rows int) []*dispatch {
		if s.tuning.grouped(rows, a.Experts, a.TopK) {
			return list
		}
		return nil
	}
	return o, nil
}
