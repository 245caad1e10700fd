package conformance

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/ref"
)

// routeCase chooses among experts: with biases that change the choice, with equal scores, with more experts than a workgroup has
// invocations, with sums below the least one, and with logits whose exponentials would overflow.
func routeCase(b *bench) error {
	for _, s := range []struct {
		rows, bucket, experts, topK int
		normMin                     float32
	}{{1, 1, 1, 1, 0}, {5, 6, 8, 3, 1e-12}, {3, 3, 64, 6, 1e-12}, {4, 9, 65, 1, 0.9}, {2, 2, 512, 16, 0.5}} {
		logits, bias := b.rowsOf(s.rows, s.bucket, s.experts), b.uniform(s.experts)
		for i := range s.rows * s.experts {
			logits[i] *= 4
		}
		for i := range bias {
			bias[i] *= 0.2
		}
		if s.rows > 2 { // rows of equal logits; then only the bias counts, and without it the lower number
			fill(logits[:s.experts], 90)
			bias[s.experts/2], bias[s.experts/3] = 0.7, 0.7
		}
		chosen, shares := poisoned(s.bucket*s.topK), poisonedFloats(s.bucket*s.topK)
		before, beforeShares := poisoned(s.bucket*s.topK), poisonedFloats(s.bucket*s.topK)
		ref.Route(&ref.RouteArgs{
			Experts: s.experts, TopK: s.topK, NormMin: s.normMin, Logits: logits, Bias: bias, Chosen: chosen, Shares: shares,
		}, 0, s.rows)
		op, err := b.set.Route(kernels.RouteArgs{
			Rows: s.bucket, Experts: s.experts, TopK: s.topK, NormMin: s.normMin, Logits: b.inputFloats(logits), Bias: b.inputFloats(bias),
			Chosen: b.output("moe_route chosen", words, exact, before, chosen),
			Shares: b.outputFloats("moe_route shares", functional, beforeShares, shares), Step: b.step(s.rows),
		})
		if err := b.run(op, err, s.bucket); err != nil {
			return err
		}
	}
	return nil
}

// expertShape is one linear layer of experts.
type expertShape struct {
	rows, bucket, experts, topK, n, k int
	parts                             int  // of the weight
	own                               bool // each slot has its own inputs
	offset, surplus                   int  // columns of y before and after those that are written
	one                               bool // all rows are sent to the same experts
}

// expertShapes are edges: one token, experts that nobody is sent to and one that all are, tiles that are full and that are not,
// rows around those of a tile.
var expertShapes = []expertShape{
	{rows: 1, bucket: 1, experts: 1, topK: 1, n: 1, k: 1, parts: 1},
	{rows: 1, bucket: 1, experts: 8, topK: 3, n: 5, k: 3, parts: 2, offset: 3, surplus: 1},
	{rows: 7, bucket: 8, experts: 8, topK: 3, n: 65, k: 96, parts: 3, own: true},
	{rows: 33, bucket: 40, experts: 5, topK: 2, n: 20, k: 40, parts: 1, one: true, surplus: 2},
	{rows: 64, bucket: 64, experts: 64, topK: 6, n: 9, k: 5, parts: 2, own: true, offset: 1},
}

// expertFormats are those that the kernels of experts are tried with: one group of each kind, and one of a group too short for
// steps of 32. What decodes them is that of the other linear layers, which are tried with all.
func expertFormats() (list []quant.Format) {
	groups := map[quant.Kind]int{}
	for _, f := range quant.Formats() {
		groups[f.Kind]++
	}
	for _, f := range quant.Formats() {
		if groups[f.Kind] == 1 || f.Group == 32 || f == (quant.Format{Kind: quant.Q4, Group: 16}) {
			list = append(list, f)
		}
	}
	return list
}

// expertsCase runs shapes for one weight format. A K that the format does not divide counts what it divides.
func expertsCase(b *bench, f quant.Format, shapes []expertShape) error {
	for _, s := range shapes {
		if s.k%f.Multiple() != 0 {
			s.k = f.Multiple() * (1 + (s.k-1)%3)
		}
		if err := experts(b, s, f); err != nil {
			return err
		}
	}
	return nil
}

// experts adds one layer.
func experts(b *bench, s expertShape, f quant.Format) error {
	chosen := make([]uint32, 0, s.bucket*s.topK)
	perm := b.Perm(s.experts)
	for range s.rows {
		if !s.one {
			perm = b.Perm(s.experts)
		}
		for _, e := range perm[:s.topK] {
			chosen = append(chosen, uint32(e))
		}
	}
	xStride, xSlot := s.k+4, 0
	if s.own {
		xStride, xSlot = s.topK*s.k, s.k
	}
	yStride := s.offset + s.topK*s.n + s.surplus
	x, before := b.rowsOf(s.rows, s.bucket, xStride), poisonedFloats(s.bucket*yStride)
	want := append([]float32(nil), before...)
	w := b.matrix(f, s.experts*s.n, s.k)
	var parts []ref.Matrix
	for i, from := 0, 0; i < s.parts; i++ { // each with some experts
		to := (i + 1) * s.experts / s.parts
		parts = append(parts, slice(w, from*s.n, to*s.n))
		from = to
	}
	ref.Experts(&ref.ExpertsArgs{
		TopK: s.topK, Chosen: chosen, X: x, XStride: xStride, XSlot: xSlot, W: w, N: s.n, Y: want, YStride: yStride, YOffset: s.offset,
	}, 0, s.rows*s.topK)
	surplus := poisoned((s.bucket - s.rows) * s.topK) // experts that are not there
	chosenBuf, step := b.input(append(chosen, surplus...)), b.step(s.rows)
	groups := b.buffer("groups", poisoned(kernels.GroupWords(s.bucket, s.experts, s.topK)), gpu.UsageStorage)
	op, err := b.set.GroupExperts(kernels.GroupExpertsArgs{
		Rows: s.bucket, Experts: s.experts, TopK: s.topK, Chosen: chosenBuf, Groups: groups, Step: step,
	})
	if err := b.run(op, err, s.bucket); err != nil {
		return err
	}
	op, err = b.set.ExpertLinear(kernels.ExpertLinearArgs{
		Rows: s.bucket, Experts: s.experts, TopK: s.topK, X: b.inputFloats(x), XStride: xStride, XSlot: xSlot, W: b.upload(parts...),
		Y: b.outputFloats("experts y", summed, before, want), YStride: yStride, YOffset: s.offset, Chosen: chosenBuf, Groups: groups, Step: step,
	})
	return b.run(op, err, s.bucket)
}

// expertsMixedParts is one weight whose experts differ in format.
func expertsMixedParts(b *bench, formats ...quant.Format) error {
	const rows, count, topK, n, k = 6, 4, 2, 12, 64
	chosen := make([]uint32, 0, rows*topK)
	for range rows {
		for _, e := range b.Perm(count)[:topK] {
			chosen = append(chosen, uint32(e))
		}
	}
	x, want := b.uniform(rows*k), poisonedFloats(rows*topK*n)
	var parts []ref.Matrix
	for e := range count {
		w := b.matrix(formats[e%len(formats)], n, k)
		parts = append(parts, w)
		ref.Experts(&ref.ExpertsArgs{
			TopK: topK, Chosen: chosen, X: x, XStride: k, W: w, N: n, Expert0: e, Y: want, YStride: topK * n,
		}, 0, rows*topK)
	}
	chosenBuf, step := b.input(chosen), b.step(rows)
	groups := b.buffer("groups", poisoned(kernels.GroupWords(rows, count, topK)), gpu.UsageStorage)
	op, err := b.set.GroupExperts(kernels.GroupExpertsArgs{Rows: rows, Experts: count, TopK: topK, Chosen: chosenBuf, Groups: groups, Step: step})
	if err := b.run(op, err, rows); err != nil {
		return err
	}
	op, err = b.set.ExpertLinear(kernels.ExpertLinearArgs{
		Rows: rows, Experts: count, TopK: topK, X: b.inputFloats(x), W: b.upload(parts...), YStride: topK * n, Chosen: chosenBuf, Groups: groups,
		Y: b.outputFloats("experts y", summed, poisonedFloats(rows*topK*n), want), Step: step,
	})
	return b.run(op, err, rows)
}

// combineCase adds up slots.
func combineCase(b *bench) error {
	for _, s := range []struct{ rows, bucket, topK, dim int }{{1, 1, 1, 1}, {2, 4, 3, 65}, {5, 5, 16, 128}} {
		shares, parts := b.rowsOf(s.rows, s.bucket, s.topK), b.rowsOf(s.rows, s.bucket, s.topK*s.dim)
		before := b.rowsOf(s.rows, s.bucket, s.dim)
		want := append([]float32(nil), before...)
		ref.CombineExperts(&ref.CombineExpertsArgs{Dim: s.dim, TopK: s.topK, Shares: shares, Parts: parts, Y: want}, 0, s.rows)
		op, err := b.set.CombineExperts(kernels.CombineExpertsArgs{
			Rows: s.bucket, TopK: s.topK, Dim: s.dim, Shares: b.inputFloats(shares), Parts: b.inputFloats(parts),
			Y: b.outputFloats("moe_combine y", functional, before, want), Step: b.step(s.rows),
		})
		if err := b.run(op, err, s.bucket); err != nil {
			return err
		}
	}
	return nil
}

// sameExperts is a row's experts, in any company.
func sameExperts(b *bench, f quant.Format) error {
	const all, count, topK, n = 64, 7, 2, 20
	k := 3 * f.Multiple()
	x := b.uniform(all * k)
	chosen := make([]uint32, 0, all*topK)
	for range all {
		for _, e := range b.Perm(count)[:topK] {
			chosen = append(chosen, uint32(e))
		}
	}
	w := b.matrix(f, count*n, k)
	weight := b.upload(w)
	return b.compareSteps("experts", topK*n, func(rows []int) (kernels.Op, error) {
		m := len(rows)
		xs, c, want := pick(x, rows, k), pick(chosen, rows, topK), poisonedFloats(m*topK*n)
		ref.Experts(&ref.ExpertsArgs{TopK: topK, Chosen: c, X: xs, XStride: k, W: w, N: n, Y: want, YStride: topK * n}, 0, m*topK)
		chosenBuf, step := b.input(c), b.step(m)
		groups := b.buffer("groups", poisoned(kernels.GroupWords(m, count, topK)), gpu.UsageStorage)
		op, err := b.set.GroupExperts(kernels.GroupExpertsArgs{Rows: m, Experts: count, TopK: topK, Chosen: chosenBuf, Groups: groups, Step: step})
		if err := b.run(op, err, m); err != nil {
			return nil, err
		}
		return b.set.ExpertLinear(kernels.ExpertLinearArgs{
			Rows: m, Experts: count, TopK: topK, X: b.inputFloats(xs), W: weight, YStride: topK * n, Chosen: chosenBuf, Groups: groups,
			Y: b.outputFloats("experts y", summed, poisonedFloats(m*topK*n), want), Step: step,
		})
	})
}
