package cpu

import (
	"fmt"
	"slices"

	"github.com/pagelight/pagelight/internal/ref"
)

// maxExperts bounds what the moe kernels can be told.
const maxExperts = 512

func moeRoute(consts) ([]phase, error) {
	var a ref.RouteArgs
	return rowwise(a, ref.Route, func(a *ref.RouteArgs, v *views) (int, int) {
		a.Experts, a.TopK = v.experts(0, 1)
		a.NormMin = v.float(2)
		a.Logits = v.floats(2, "logits", v.rows*a.Experts)
		a.Bias = v.floats(3, "bias", a.Experts)
		a.Chosen = v.chosen(4, a.TopK)
		a.Shares = v.floats(5, "shares", v.rows*a.TopK)
		return v.rows, 10 * a.TopK * a.Experts
	}), nil
}

// experts are two fields of Params: how many there are, and how many a token is sent to.
func (v *views) experts(all, slots int) (experts, topK int) {
	experts, topK = v.count(all, "experts"), v.count(slots, "slots")
	if experts < 1 || experts > maxExperts || topK < 1 || topK > experts {
		v.fail("%d slots and %d experts, the most is %d", topK, experts, maxExperts)
		return 1, 1
	}
	return experts, topK
}

// chosen is a binding that must have one element for each pair.
func (v *views) chosen(i, topK int) []uint32 {
	c := v.words(i)
	if len(c) < v.rows*topK {
		v.fail("chosen: %d elements, %d needed", len(c), v.rows*topK)
	}
	return c[:min(len(c), v.rows*topK)]
}

func moeGroup(c consts) ([]phase, error) {
	tile, err := c.get("TILE")
	var a ref.GroupExpertsArgs
	return []phase{{
		prepare: func(v *views) (int, int) {
			experts, topK := v.experts(0, 1)
			a = ref.GroupExpertsArgs{Experts: experts, Tile: int(tile), Tiles: v.dim(2, "tiles"), Chosen: v.chosen(2, topK), Groups: v.words(3)}
			if most := (len(a.Chosen) + min(len(a.Chosen), experts)*(a.Tile-1)) / a.Tile; a.Tiles < most || len(a.Groups) < a.Tiles*(1+a.Tile) {
				v.fail("%d tiles in %d words, %d tiles needed", a.Tiles, len(a.Groups), most)
			}
			return 1, experts * len(a.Chosen)
		},
		run:  func(*ref.Scratch, int, int) { ref.GroupExperts(&a) },
		drop: func() { a = ref.GroupExpertsArgs{} },
	}}, err
}

// moeMatvec finds the expert of each pair in what moe_route chose.
func moeMatvec(c consts) ([]phase, error) { return moeLinear(c, 1) }

// moeMatmul finds the pairs of each expert in the tiles of moe_group.
func moeMatmul(c consts) ([]phase, error) { return moeLinear(c, 32) }

// moeSerial does either.
func moeSerial(c consts) ([]phase, error) {
	tile, err := c.get("TILE")
	if err != nil {
		return nil, err
	}
	return moeLinear(c, int(tile))
}

// moeLinear computes all pairs of an expert together, whatever the tiles are.
func moeLinear(c consts, tile int) ([]phase, error) {
	var a ref.ExpertsArgs
	var pairs ref.ExpertPairs
	var experts []uint32 // of the pairs, where they come in tiles
	var x []float64      // X widened, by the first phase
	var quads int        // of the rows of an expert
	var err error
	a.W.Format, err = c.format()
	drop := func() { a, x = ref.ExpertsArgs{W: ref.Matrix{Format: a.W.Format}}, nil }
	return []phase{{
		prepare: func(v *views) (int, int) {
			k, n, topK, tiles := v.dim(0, "k"), v.dim(1, "n"), v.count(2, "slots"), v.dim(3, "tiles")
			a.N, a.TopK = n, max(1, topK)
			a.XStride, a.XSlot = v.dim(4, "x_stride"), v.dim(5, "x_slot")
			a.YStride, a.YOffset = v.dim(6, "y_stride"), v.dim(7, "y_offset")
			a.Expert0 = v.count(8, "expert0")
			count := v.count(9, "experts")
			v.matrix(&a.W, count*n, k, 4, 5)
			if n == 0 || (a.TopK-1)*a.XSlot+k > a.XStride || a.YOffset+a.TopK*n > a.YStride {
				v.fail("%d slots of %d inputs and %d outputs do not fit rows of %d and %d", a.TopK, k, n, a.XStride, a.YStride)
			}
			a.X = v.floats(2, "x", v.rows*a.XStride)
			a.Y = v.floats(6, "y", v.rows*a.YStride)
			if tile == 1 {
				a.Chosen = v.chosen(3, a.TopK)
			} else if experts, err = untile(experts, v.words(3), tiles, tile, v.rows*a.TopK); err != nil {
				v.fail("groups: %v", err)
			} else {
				a.Chosen = experts
			}
			if v.err != nil {
				return 0, 0
			}
			pairs.Sort(a.Chosen, a.Expert0, count)
			quads = (n + 3) / 4
			inputs := a.Inputs(v.rows)
			x = v.widened(inputs * k)
			return inputs, k / 2
		},
		run:  func(_ *ref.Scratch, lo, hi int) { a.Widen(x, lo, hi) },
		drop: drop,
	}, {
		// An item is four rows of one expert, for all of its pairs.
		prepare: func(*views) (int, int) {
			if pairs.Used() == 0 {
				return 0, 0
			}
			return pairs.Used() * quads, 4 * a.W.K * (2 + len(a.Chosen)/pairs.Used())
		},
		run: func(s *ref.Scratch, lo, hi int) {
			for i := lo; i < hi; i++ {
				j := 4 * (i % quads)
				ref.ExpertsFast(&a, &pairs, x, s, i/quads, j, min(j+4, a.N))
			}
		},
		drop: drop,
	}}, err
}

// untile writes the expert of each pair, as tiles of tile pairs say, into experts, which it may make longer.
func untile(experts, groups []uint32, tiles, tile, count int) ([]uint32, error) {
	if len(groups) < tiles*(1+tile) {
		return experts, fmt.Errorf("%d words for %d tiles", len(groups), tiles)
	}
	experts = slices.Grow(experts[:0], count)[:count]
	for i := range experts {
		experts[i] = ref.NoPair
	}
	for t, e := range groups[:tiles] {
		if e == ref.NoPair {
			continue
		}
		for _, pair := range groups[tiles+t*tile:][:tile] {
			if pair == ref.NoPair {
				continue
			}
			if int64(pair) >= int64(count) {
				return experts, fmt.Errorf("pair %d of %d", pair, count)
			}
			experts[pair] = e
		}
	}
	return experts, nil
}

func moeCombine(consts) ([]phase, error) {
	var a ref.CombineExpertsArgs
	return rowwise(a, ref.CombineExperts, func(a *ref.CombineExpertsArgs, v *views) (int, int) {
		a.Dim, a.TopK = v.dim(0, "dim"), v.count(1, "slots")
		a.Shares = v.floats(2, "shares", v.rows*a.TopK)
		a.Parts = v.floats(3, "parts", v.rows*a.TopK*a.Dim)
		a.Y = v.floats(4, "y", v.rows*a.Dim)
		return v.rows, a.Dim * a.TopK
	}), nil
}
