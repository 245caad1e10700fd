package kernels

import "github.com/pagelight/pagelight/internal/gpu"

const (
	uniformVecs   = 4096 // of 16 bytes, that a uniform binding shows on every device
	uniformTokens = 8    // most tokens per invocation of matmul_uniform
	uniformShared = 32   // most rows of a bucket whose last few rows have a dispatch of their own
)

// uniformRows is how many rows of k elements a uniform binding of matmul_uniform shows: a multiple of 8, 4 where they are
// long, and 0 where matmul_uniform cannot be used.
func uniformRows(k int) int {
	rows := 4 * uniformVecs / k
	if rows >= uniformTokens {
		rows = rows / uniformTokens * uniformTokens
	} else if rows = rows / 4 * 4; rows == 0 {
		return 0
	}
	if rows*k*4%slotBytes != 0 { // bindings begin at multiples of it
		return 0
	}
	return rows
}

// InputRows is how many rows of k elements a buffer needs to be the X of Linear for rows rows with LinearArgs.UniformX: each
// binding shows 64 KiB, also where the rows end before.
func InputRows(rows, k int) int {
	if n := uniformRows(k); n > 0 {
		return (rows-1)/n*n + ceil(4*uniformVecs, k)
	}
	return rows
}

// stretch is some neighbouring rows that one dispatch of matmul_uniform computes, as far as a bucket has them.
type stretch struct{ tokens, row0, rows int }

// stretches divides a bucket of rows rows where a binding shows chunk rows. Many rows go by eights; the few that are left of
// a small bucket go by fours, or alone. Buckets share most stretches, for each needs a bind group.
func stretches(rows, chunk int) []stretch {
	if rows == 1 {
		return []stretch{{1, 0, 1}}
	}
	if rows <= 4 {
		return []stretch{{4, 0, 4}}
	}
	tokens := min(uniformTokens, chunk)
	left := rows % tokens
	full := rows - left
	apart := rows <= uniformShared && full > 0 && (left == 1 || left > 0 && left <= 4 && tokens > 4)
	if !apart {
		full = rows
	}
	var list []stretch
	for row0 := 0; row0 < full; row0 += chunk {
		st := stretch{tokens, row0, chunk}
		if apart {
			st.rows = min(chunk, full-row0)
		}
		list = append(list, st)
	}
	switch {
	case apart && left == 1:
		list = append(list, stretch{1, full, 1})
	case apart:
		list = append(list, stretch{4, full, 4})
	}
	return list
}

// uniformParams are the Params of matmul_uniform.
type uniformParams struct {
	K, N, Rows, YStride, YOffset, Flags, Row0, XRow0 uint32
}

// matmulUniform makes the dispatches of every stretch that buckets of up to a.Rows rows have. The result gives those of a
// bucket.
func (s *Set) matmulUniform(a *LinearArgs) (func(rows int) []*dispatch, error) {
	chunk := uniformRows(a.W.K)
	made := map[stretch][]*dispatch{} // one for each part
	for rows := 1; rows <= a.Rows; rows++ {
		for _, st := range stretches(rows, chunk) {
			if made[st] != nil {
				continue
			}
			for _, part := range a.W.Parts {
				p, err := s.pipeline("matmul_uniform", &part.Format, serialConsts(st.tokens, part.Format, a.W.K))
				if err != nil {
					return nil, err
				}
				l := a.params(part)
				xRow0 := st.row0 / chunk * chunk
				params := uniformParams{
					K: l.K, N: l.N, Rows: uint32(st.rows), YStride: l.YStride, YOffset: l.YOffset, Flags: l.Flags,
					Row0: uint32(st.row0), XRow0: uint32(xRow0),
				}
				x := gpu.Binding{Buffer: a.X, Offset: 4 * int64(xRow0) * int64(a.W.K), Size: 16 * uniformVecs}
				group, err := s.bindRanges(p, params, a.Step, x, gpu.Binding{Buffer: part.Data}, gpu.Binding{Buffer: part.Scales},
					gpu.Binding{Buffer: a.Bias}, gpu.Binding{Buffer: a.Y})
				if err != nil {
					return nil, err
				}
				made[st] = append(made[st], &dispatch{p, group, func(rows int) [3]uint32 {
					return s.serialGrid(st.tokens, min(st.rows, rows-st.row0), part.Rows)
				}})
			}
		}
	}
	return func(rows int) []*dispatch {
		var list []*dispatch
		for _, st := range stretches(rows, chunk) {
			list = append(list, made[st]...)
		}
		return list
	}, nil
}
