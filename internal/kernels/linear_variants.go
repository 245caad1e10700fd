package kernels

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/wgsl"
)

// variant is one kernel that can compute a linear layer.
type variant struct {
	kernel, name string
	maxRows      int // the largest bucket that it serves
	consts       func(format quant.Format, k int) wgsl.Consts
	grid         func(n int) func(rows int) [3]uint32
	gates, norms bool // has a constant GATED, and NORM
	parts        int  // that K is cut into; sum_parts follows if it is more than one
	octets       int  // of matmul_tile: parts are multiples of so many inputs over 8
}

// upTo is the variant for buckets of up to rows rows.
func (v variant) upTo(rows int) variant {
	v.maxRows = rows
	return v
}

// linearBuckets are the numbers of rows up to which one variant serves; more rows have one more.
var linearBuckets = []int{1, 4, 8, 16, 32, 64, 128, 256, 512}

// linearVariants lists the kernels that buckets of up to a.Rows rows need, for the smallest buckets first.
func (s *Set) linearVariants(a *LinearArgs) (list []variant) {
	rows := a.Rows
	few := min(s.tuning.MatmulRows-1, rows)
	switch {
	case s.tuning.BarrierFree:
		if few >= 1 {
			list = append(list, s.matmulSerial(1).upTo(few))
		}
		if rows > few {
			list = append(list, s.matmulSerial(serialTokens).upTo(rows))
		}
		return list
	case s.tuning.Deterministic: // one pipeline for all rows
		var options []variant
		for _, l := range laneShapes(16, a.W.Rows, a.W.K) {
			options = append(options, s.matmulLanes(l))
		}
		options = append(options, s.matvec(4))
		for _, t := range tileShapes {
			options = append(options, s.matmulTile(t, 1))
		}
		return append(list, s.chooseLinear(a, rows, "all", options).upTo(rows))
	}
	for from, i := 1, 0; from <= rows; i++ {
		top, name := rows, "more"
		if i < len(linearBuckets) {
			top, name = min(linearBuckets[i], rows), strconv.Itoa(linearBuckets[i])
		}
		list = append(list, s.chooseLinear(a, top, name, s.linearOptions(a, top)).upTo(top))
		from = top + 1
	}
	return list
}

// linearOptions lists what can compute rows rows, the default first.
func (s *Set) linearOptions(a *LinearArgs, rows int) (list []variant) {
	n, k := a.W.Rows, a.W.K
	var lanes, tiles []variant
	for _, l := range laneShapes(rows, n, k) {
		lanes = append(lanes, s.matmulLanes(l))
	}
	switch {
	case a.InNorm != nil && rows <= NormRows:
		return lanes
	case rows == 1:
		return []variant{s.matvec(1), s.matvec(4)}
	}
	for _, o := range tileOptions(rows, n, k) {
		tiles = append(tiles, s.matmulTile(o.shape, o.parts))
	}
	switch {
	case rows < s.tuning.MatmulRows && rows <= 4: // two to five times as fast on an H200, most for an LM head
		return slices.Concat(lanes, []variant{s.matvec(4)}, tiles)
	case rows < s.tuning.MatmulRows && (rows <= 16 || n <= 8192): // for an LM head tiles pay sooner
		return slices.Concat(lanes, []variant{s.matvec(4)}, tiles, []variant{s.matmul()})
	case rows <= 64:
		return slices.Concat(tiles, lanes, []variant{s.matmul()})
	}
	return append(tiles, s.matmul())
}

// chooseLinear picks among variants for a bucket.
func (s *Set) chooseLinear(a *LinearArgs, rows int, bucket string, options []variant) variant {
	key := "linear "
	for i, p := range a.W.Parts {
		if i > 0 && p.Format != a.W.Parts[i-1].Format {
			key += "+"
		}
		if i == 0 || p.Format != a.W.Parts[i-1].Format {
			key += p.Format.String()
		}
	}
	key += fmt.Sprintf(" %dx%d", a.W.K, a.W.Rows)
	if a.Gated {
		key += " gated"
	}
	if a.InNorm != nil && rows <= NormRows {
		key += " normed"
	}
	names := make([]string, len(options))
	for i, v := range options {
		names[i] = v.name
	}
	name := s.choose(key+" "+bucket, rows, names...)
	return options[slices.Index(names, name)]
}
