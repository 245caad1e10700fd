package cpu

import "github.com/pagelight/pagelight/internal/ref"

// sample is the kernel of this name.
func sample(consts) ([]phase, error) {
	return rowwise(ref.SampleArgs{Margin: 1}, ref.Sample, func(a *ref.SampleArgs, v *views) (int, int) {
		a.K, a.Limit = v.count(0, "k"), v.dim(1, "limit")
		a.Top = elements[ref.Best](v, 2, "top", v.rows*a.K, 2)
		a.Sums = elements[[2]uint32](v, 3, "sums", v.rows, 2)
		if a.Parts = v.dim(2, "parts"); a.Parts > 0 {
			a.Mass = elements[ref.Mass](v, 4, "mass", v.rows*a.Parts, 15)
		}
		a.Samplers = elements[ref.Sampler](v, 5, "samplers", v.rows, 8)
		a.Draws = elements[ref.Draw](v, 6, "draws", v.rows, 4)
		a.IDs = v.words(7)
		if len(a.IDs) < v.rows {
			v.fail("ids: %d elements, %d needed", len(a.IDs), v.rows)
		}
		if a.K == 0 {
			v.fail("no candidates")
		}
		return v.rows, 64 * a.K
	}), nil
}

// sampleMass is the kernel of this name.
func sampleMass(consts) ([]phase, error) {
	return rowwise(ref.MassArgs{}, ref.SampleMass, func(a *ref.MassArgs, v *views) (int, int) {
		a.Vocab, a.Limit, a.Parts, a.K = v.dim(0, "vocab"), v.dim(1, "limit"), v.dim(2, "parts"), v.count(3, "k")
		if a.Limit == 0 || a.Limit > a.Vocab {
			v.fail("limit %d of a vocabulary of %d", a.Limit, a.Vocab)
		}
		a.Top = elements[ref.Best](v, 2, "top", v.rows*a.K, 2)
		a.Sums = elements[[2]uint32](v, 3, "sums", v.rows, 2)
		a.Samplers = elements[ref.Sampler](v, 4, "samplers", v.rows, 8)
		a.Draws = elements[ref.Draw](v, 5, "draws", v.rows, 4)
		a.Logits = v.floats(6, "logits", v.rows*a.Vocab)
		a.Mass = elements[ref.Mass](v, 7, "mass", v.rows*a.Parts, 15)
		return v.rows, 32 * a.Limit
	}), nil
}
