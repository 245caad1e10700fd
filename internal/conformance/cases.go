// Package conformance holds every kernel, on any device, against its plain form in internal/ref: edge shapes and seeded
// random ones, in every variant, whether or not the device would choose it.
//
// Outputs are filled with a NaN before a kernel runs, and end in guard words: a kernel must write what ref writes and
// nothing else. Cache slots and table entries that no sequence owns hold NaN and nonsense: reading them shows.
//
// The suite knows no driver. It runs in native tests, in the browser, and as the self-test of doctor and of the page.
package conformance

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/quant"
)

// Level says how much to run.
type Level uint8

// The levels.
const (
	Quick Level = iota // each kernel once or twice, in the variants that the device uses: a self-test
	Full               // every kernel, variant, weight format and edge shape
)

// Case is one kernel in one specialisation, with several shapes.
type Case struct {
	Name string // kernel/specialisation

	seed   uint64
	fill   func(b *bench) error // adds shapes to the bench
	tuning *kernels.Tuning      // nil for the device's own choice of variants
	needs  string               // a capability; the case has no shapes where the device lacks it
}

// Result is what a case measured.
type Result struct {
	Name   string  `json:"name"`
	Shapes int     `json:"shapes"`  // how many
	Values int     `json:"values"`  // compared
	MaxAbs float64 `json:"max_abs"` // the largest difference from ref
	MaxRel float64 `json:"max_rel"` // the largest difference over the tolerance's magnitude, of values that are not tiny
}

// Run runs the case on dev. The error names the first value that is off.
func (c Case) Run(ctx context.Context, dev gpu.Device) error {
	_, err := c.Measure(ctx, dev)
	return err
}

// Measure is Run that also tells how close the device came.
func (c Case) Measure(ctx context.Context, dev gpu.Device) (Result, error) {
	result := Result{Name: c.Name}
	tuning := kernels.TuningFor(dev.Info())
	if c.tuning != nil {
		tuning = *c.tuning
	}
	if !hasCapability(dev.Info(), c.needs) {
		return result, nil
	}
	b := newBench(ctx, dev, tuning, c.seed)
	defer b.release()
	err := c.fill(b)
	if err == nil {
		err = b.finish(&result)
	}
	if err != nil {
		return result, fmt.Errorf("conformance: %s: %w", c.Name, err)
	}
	return result, nil
}

// Run runs the cases of a level and tells report of each, until ctx ends. It returns the first error after all have run.
func Run(ctx context.Context, dev gpu.Device, level Level, report func(Result, error)) error {
	var first error
	for _, c := range Cases(level) {
		if err := ctx.Err(); err != nil {
			return err
		}
		result, err := c.Measure(ctx, dev)
		if first == nil {
			first = err
		}
		if report != nil {
			report(result, err)
		}
	}
	return first
}

// The choices of variants that cases force.
var (
	forceMatvec   = kernels.Tuning{Prefer: []string{"matvec 4", "decode"}, MatmulRows: math.MaxInt32, GroupPairs: math.MaxInt32, PrefillRows: math.MaxInt32, Workgroups: 1024}
	forceMatmul   = kernels.Tuning{Prefer: []string{"matmul", "prefill"}, MatmulRows: 1, PrefillRows: 1, Workgroups: 1024}
	forceGrouped  = kernels.Tuning{Prefer: []string{"grouped 8x128", "grouped 4x128 late"}, MatmulRows: 1, PrefillRows: math.MaxInt32, Workgroups: 1024}
	groupWide     = kernels.Tuning{Prefer: []string{"grouped 4x256"}, MatmulRows: 1, PrefillRows: math.MaxInt32, Workgroups: 64}
	groupNarrow   = kernels.Tuning{Prefer: []string{"grouped 4x128"}, MatmulRows: 1, PrefillRows: 1, Workgroups: 1024}
	forceStrides  = kernels.Tuning{Prefer: []string{"decode"}, MatmulRows: 1, PrefillRows: math.MaxInt32, Workgroups: 1}
	serialMatvec  = kernels.Tuning{BarrierFree: true, MatmulRows: math.MaxInt32, GroupPairs: math.MaxInt32, PrefillRows: 1, Workgroups: 1}
	serialMatmul  = kernels.Tuning{BarrierFree: true, MatmulRows: 1, PrefillRows: 1, Workgroups: 1}
	serialParts   = kernels.Tuning{BarrierFree: true, MatmulRows: 1, PrefillRows: 1, Workgroups: 1, SerialPart: 32}
	serialBoth    = kernels.Tuning{BarrierFree: true, MatmulRows: 2, GroupPairs: 2, PrefillRows: 1, Workgroups: 1, Deterministic: true}
	uniform       = kernels.Tuning{BarrierFree: true, UniformX: true, MatmulRows: 2, PrefillRows: 1, Workgroups: 1, Deterministic: true}
	onePipeline   = kernels.Tuning{MatmulRows: 9, PrefillRows: 65, Workgroups: 1024, Deterministic: true}
	shortContexts = kernels.Tuning{Fuse: true, ShortContext: 128, MatmulRows: 1, PrefillRows: 1, Workgroups: 1}
)

// hasCapability says whether a device has what a case needs, if anything.
func hasCapability(info gpu.Info, name string) bool {
	for _, c := range kernels.Capabilities() {
		if c.Name == name {
			return c.Has(info)
		}
	}
	return name == ""
}

// Cases lists the cases of a level.
func Cases(level Level) []Case {
	var list []Case
	add := func(name string, tuning *kernels.Tuning, fill func(*bench) error) {
		list = append(list, Case{Name: name, seed: uint64(len(list)) + 1, tuning: tuning, fill: fill})
	}
	if level == Quick {
		q4, f16 := quant.Format{Kind: quant.Q4, Group: 32}, quant.Format{Kind: quant.F16}
		add("embed/q4g32", nil, func(b *bench) error { return embedCase(b, q4) })
		add("rms_norm", nil, func(b *bench) error { return rmsNormCase(b, []int{257, 1024}) })
		add("matvec/q4g32", nil, func(b *bench) error { return linearQuick(b, q4, 1) })
		add("matvec/f16", nil, func(b *bench) error { return linearQuick(b, f16, 1) })
		add("matmul/q4g32", nil, func(b *bench) error { return linearQuick(b, q4, 66) })
		add("gated/q4g32", nil, func(b *bench) error { return gatedLinear(b, gatedRows[1], cut(b.matrix(q4, 134, 1024), 1)) })
		add("rope_store/f16", nil, func(b *bench) error { return ropeStoreCase(b, quant.KVF16, []int{128}, false) })
		add("rope", nil, func(b *bench) error { return ropeCase(b, []int{128}, false) })
		add("rope/half_split", nil, func(b *bench) error { return ropeCase(b, []int{128}, true) })
		add("qk_norm", nil, func(b *bench) error { return qkNormCase(b, []int{64, 128}) })
		add("kv_store/f16", nil, func(b *bench) error { return kvStoreCase(b, quant.KVF16, []int{128}) })
		add("kv_store/int8", nil, func(b *bench) error { return kvStoreCase(b, quant.KVI8, []int{128}) })
		add("attention/decode", nil, func(b *bench) error { return attentionCase(b, quant.KVF16, []int{128}, decodeRuns) })
		add("attention/prefill", nil, func(b *bench) error { return attentionCase(b, quant.KVF16, []int{128}, longRuns) })
		add("attention/int8", nil, func(b *bench) error { return attentionCase(b, quant.KVI8, []int{128}, longRuns) })
		add("norm_linear/q4g32", nil, func(b *bench) error { return normLinearCase(b, q4, fusedShapes[:1]) })
		add("qkv_rope_store/q4g32", nil, func(b *bench) error { return qkvRopeStoreCase(b, q4, qkvShapes[:1]) })
		add("attn_linear/q4g32", nil, func(b *bench) error { return attnLinearCase(b, q4, quant.KVF16, []int{128}, false) })
		add("paged_attn_linear/q4g32", &shortContexts, func(b *bench) error { return pagedAttnLinearCase(b, q4, quant.KVF16, []int{128}, 3) })
		add("head_argmax/q4g32", nil, func(b *bench) error { return headArgmaxCase(b, q4, headShapes[:1], true) })
		add("silu_mul", nil, siluMulCase)
		add("gather_rows", nil, gatherRowsCase)
		add("gather_columns", nil, gatherColumnsCase)
		add("moe_route", nil, routeCase)
		add("experts/q4g32", nil, func(b *bench) error { return expertsCase(b, q4, expertShapes[2:]) })
		add("moe_combine", nil, combineCase)
		add("argmax", nil, argmaxCase)
		add("argmax_advance", nil, argmaxAdvanceCase)
		add("advance", nil, advanceCase)
		add("topk", nil, topKCase)
		add("sample", nil, sampleMassCase)
		add("penalize", nil, penalizeCase)
		return list
	}

	dims := []int{16, 48, 80, 128, 256}
	for _, f := range someFormats() {
		add("embed/"+f.String(), nil, func(b *bench) error { return embedCase(b, f) })
	}
	norms := []int{1, 7, 255, 256, 257, 768, 1000, 1024}
	add("rms_norm", &forceMatmul, func(b *bench) error { return rmsNormCase(b, norms) })
	add("rms_norm_serial", &serialMatmul, func(b *bench) error { return rmsNormCase(b, norms) })
	for _, f := range someFormats() {
		few := func(b *bench) error { return linearCase(b, f, fewRows) }
		many := func(b *bench) error { return linearCase(b, f, manyRows) }
		if !common(f) { // what a lib file has of its own is tried, not again what all formats share
			once := func(b *bench) error { return linearShapes(b, f, libRows) }
			add("matvec/"+f.String(), &forceMatvec, once)
			if typical(f) {
				add("matmul_serial_1/"+f.String(), &serialMatvec, once)
				add("matmul_uniform/"+f.String(), &uniform, func(b *bench) error { return linearShapes(b, f, libRows[:1]) })
				add("matmul/"+f.String(), &forceMatmul, once)
				add("matmul_serial/"+f.String(), &serialMatmul, once)
			}
			continue
		}
		add("matvec/"+f.String(), &forceMatvec, few)
		add("matmul_serial_1/"+f.String(), &serialMatvec, few)
		add("matmul_uniform/"+f.String(), &uniform, func(b *bench) error {
			return linearCase(b, f, slices.Concat(fewRows, manyRows))
		})
		add("matmul/"+f.String(), &forceMatmul, many)
		add("matmul_serial/"+f.String(), &serialMatmul, few)
	}
	for _, f := range someFormats() {
		if !tiled(f) {
			continue
		}
		plain, gated, options := tileRows, gatedRows, tileOptions
		if !common(f) { // what a lib file has of its own was tried above
			plain, gated, options = plain[:1], gated[1:2], options[:2]
		}
		for _, names := range options {
			add(names[0]+"/"+f.String(), preferring(names[1:]...), func(b *bench) error { return tileCase(b, f, plain, gated) })
		}
	}
	q4 := quant.Format{Kind: quant.Q4, Group: 32}
	add("sum_norm/q4g32", preferring("tile 32x64 k2", "tile 64x64 k16", "lanes 64"), func(b *bench) error { return normedCase(b, q4, false) })
	add("sum_norm/whole", preferring("tile 32x64", "lanes 32"), func(b *bench) error { return normedCase(b, quant.Format{Kind: quant.F32}, false) })
	add("sum_norm/later", preferring("tile 32x64 k2", "lanes 64"), func(b *bench) error { return normedCase(b, q4, true) })
	add("matmul_lanes_norm/q4g32", preferring("lanes 32x8", "tile 32x64"), func(b *bench) error { return inputNormCase(b, q4) })
	add("matmul_lanes_norm/f32", preferring("lanes 128", "tile 32x64"), func(b *bench) error { return inputNormCase(b, quant.Format{Kind: quant.F32}) })
	add("rope_store/parts", preferring("tile 32x64 k2", "tile 32x64 k3", "lanes 64"), func(b *bench) error { return ropedCase(b, q4) })
	add("rope_store/whole", preferring("tile 32x64", "lanes 32"), func(b *bench) error { return ropedCase(b, quant.Format{Kind: quant.F32}) })
	add("linear/mixed_parts", nil, linearMixedParts)
	add("rope", nil, func(b *bench) error { return ropeCase(b, dims, false) })
	add("rope/half_split", nil, func(b *bench) error { return ropeCase(b, dims, true) })
	add("qk_norm", &forceMatmul, func(b *bench) error { return qkNormCase(b, dims) })
	add("qk_norm/one_lane", &serialMatmul, func(b *bench) error { return qkNormCase(b, dims) })
	for _, kv := range []quant.KVType{quant.KVF16, quant.KVF32} {
		add("rope_store/"+kv.String(), nil, func(b *bench) error { return ropeStoreCase(b, kv, dims, false) })
		add("rope_store/half_split/"+kv.String(), nil, func(b *bench) error { return ropeStoreCase(b, kv, dims, true) })
	}
	for _, kv := range quant.KVTypes() {
		suffix := "/" + kv.String()
		runs := slices.Concat(decodeRuns, longRuns)
		add("kv_store"+suffix, nil, func(b *bench) error { return kvStoreCase(b, kv, dims) })
		add("paged_attn_decode"+suffix, &forceMatvec, func(b *bench) error { return attentionCase(b, kv, dims, runs) })
		add("paged_attn_decode_strides"+suffix, &forceStrides, func(b *bench) error {
			return attentionCase(b, kv, []int{48, 128}, decodeRuns)
		})
		small, large := dims[:len(dims)-1], []int{144, dims[len(dims)-1]} // what follows ends at 128, paged_attn_prefill serves the others
		add("paged_attn_grouped"+suffix, &forceGrouped, func(b *bench) error { return attentionCase(b, kv, small, runs) })
		add("paged_attn_grouped_wide"+suffix, &groupWide, func(b *bench) error { return attentionCase(b, kv, small, runs) })
		add("paged_attn_grouped_narrow"+suffix, &groupNarrow, func(b *bench) error { return attentionCase(b, kv, []int{48, 128}, mixedRuns) })
		add("paged_attn_prefill"+suffix, &forceMatmul, func(b *bench) error { return attentionCase(b, kv, large, runs) })
		add("paged_attn_serial"+suffix, &serialMatmul, func(b *bench) error { return attentionCase(b, kv, dims, runs) })
		add("paged_attn_serial_split"+suffix, &serialParts, func(b *bench) error {
			return attentionCase(b, kv, []int{48, 128}, decodeRuns)
		})
	}
	for _, f := range fusedFormats() {
		add("norm_linear/"+f.String(), nil, func(b *bench) error { return normLinearCase(b, f, fusedShapes) })
		add("qkv_rope_store/"+f.String(), nil, func(b *bench) error { return qkvRopeStoreCase(b, f, qkvShapes) })
	}
	for _, kv := range quant.KVTypes() {
		add("attn_linear/"+kv.String(), nil, func(b *bench) error { return attnLinearCase(b, q4, kv, []int{48, 128, 256}, false) })
		add("attn_linear_long/"+kv.String(), nil, func(b *bench) error { return attnLinearCase(b, q4, kv, []int{16, 128}, true) })
	}
	add("attn_linear/f16", nil, func(b *bench) error {
		return attnLinearCase(b, quant.Format{Kind: quant.F16}, quant.KVF16, []int{128}, false)
	})
	for _, f := range fusedFormats() {
		add("paged_attn_linear/"+f.String(), &shortContexts, func(b *bench) error { return pagedAttnLinearCase(b, f, quant.KVF16, []int{128}, 6) })
	}
	for _, kv := range []quant.KVType{quant.KVF16, quant.KVF32} {
		dims := dims[:len(dims)-1] // it ends at 128
		add("paged_attn_linear/"+kv.String(), &shortContexts, func(b *bench) error { return pagedAttnLinearCase(b, q4, kv, append(dims, 64), 2) })
	}
	for _, f := range fusedFormats() {
		add("head_argmax/"+f.String(), nil, func(b *bench) error { return headArgmaxCase(b, f, headShapes[:2], false) })
	}
	for _, shape := range []string{"4x64", "8x128", "8x256", "8x96"} {
		add("head_argmax_"+shape, preferring(shape), func(b *bench) error { return headArgmaxCase(b, q4, headShapes, true) })
	}
	add("attention_long", nil, attentionLong)
	add("silu_mul", nil, siluMulCase)
	add("gather_rows", nil, gatherRowsCase)
	add("gather_columns", nil, gatherColumnsCase)
	add("moe_route", nil, routeCase)
	for _, f := range expertFormats() {
		all := func(b *bench) error { return expertsCase(b, f, expertShapes) }
		add("moe_matvec/"+f.String(), &forceMatvec, all)
		add("moe_matmul/"+f.String(), &forceMatmul, all)
		add("moe_serial_1/"+f.String(), &serialMatvec, all)
		add("moe_serial/"+f.String(), &serialMatmul, all)
	}
	add("experts/mixed_parts", nil, func(b *bench) error {
		return expertsMixedParts(b, quant.Format{Kind: quant.Q4, Group: 32}, quant.Format{Kind: quant.BF16}, quant.Format{Kind: quant.Q8, Group: 64})
	})
	add("moe_combine", nil, combineCase)
	add("argmax", &forceMatmul, argmaxCase)
	add("argmax_serial", &serialMatmul, argmaxCase)
	add("argmax_advance", nil, argmaxAdvanceCase)
	add("advance", nil, advanceCase)
	add("topk", &forceMatmul, topKCase)
	add("topk/race", &forceMatmul, topKRaceCase)
	add("topk_serial", &serialMatmul, topKCase)
	add("topk_serial/race", &serialMatmul, topKRaceCase)
	add("sample", nil, sampleCase)
	add("sample_mass", nil, sampleMassCase)
	add("penalize", nil, penalizeCase)
	for _, t := range []struct {
		name   string
		tuning *kernels.Tuning
	}{{"deterministic", &onePipeline}, {"deterministic_serial", &serialBoth}} {
		for _, f := range someFormats() {
			if !common(f) {
				continue
			}
			add(t.name+"/linear/"+f.String(), t.tuning, func(b *bench) error { return sameLinear(b, f) })
		}
		for _, kv := range quant.KVTypes() {
			add(t.name+"/attention/"+kv.String(), t.tuning, func(b *bench) error { return sameAttention(b, kv, 64) })
		}
		add(t.name+"/rms_norm", t.tuning, sameNorm)
		for _, f := range []quant.Format{{Kind: quant.BF16}, {Kind: quant.Q4, Group: 32}, {Kind: quant.Q6K, Group: 16}} {
			add(t.name+"/experts/"+f.String(), t.tuning, func(b *bench) error { return sameExperts(b, f) })
		}
	}
	for _, f := range []quant.Format{{Kind: quant.F16}, {Kind: quant.Q8, Group: 32}, {Kind: quant.Q4, Group: 32}} { // slow to compile in browsers
		add("deterministic_uniform/linear/"+f.String(), &uniform, func(b *bench) error { return sameLinear(b, f) })
	}
	for _, c := range subgroupCases() {
		add(c.Name, c.tuning, c.fill)
		list[len(list)-1].needs = c.needs
	}
	return list
}
