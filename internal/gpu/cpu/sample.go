package cpu

import "github.com/pagelight/pagelight/internal/ref"

// sample is the kernel of this name.
func sample(consts) ([]phase, error) {
	return rowwise(ref.SampleArgs{Margin: 1}, ref.Sample, func(a *ref.SampleArgs, v *views) (int, int) {
		a.K, a.Limit = v.count(0, "k"), v.dim(1, "limit")
		a.Top = elements[ref.Best](v, 2, "top", v.rows*a.K, 2)
		a.Sums = elements[[2]uint32](v, 3, "sums", v.rows, 2)
		a.Samplers = elements[ref.Sampler](v, 4, "samplers", v.rows, 8)
		a.Draws = elements[ref.Draw](v, 5, "draws", v.rows, 4)
		a.IDs = v.words(6)
		if len(a.IDs) < v.rows {
			v.fail("ids: %d elements, %d needed", len(a.IDs), v.rows)
		}
		if a.K == 0 {
			v.fail("no candidates")
		}
		return v.rows, 64 * a.K
	}), nil
}
