//go:build !js

package conformance_test

import (
	"fmt"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/gputest"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/quant"
)

// BenchmarkLinear measures linear layers of ERNIE-4.5-0.3B with the variants that the device uses. The bytes are those of
// Op.Traffic, so that MB/s is the bandwidth reached; a token of that model is 360.7 million weights.
func BenchmarkLinear(b *testing.B) {
	for _, format := range []quant.Format{
		{Kind: quant.Q4, Group: 32},
		{Kind: quant.Q4, Group: 128},
		{Kind: quant.Q8, Group: 32},
		{Kind: quant.F16},
		{Kind: quant.Q2, Group: 64},
		{Kind: quant.Q4K, Group: 32},
		{Kind: quant.Q6K, Group: 16},
		{Kind: quant.IQ4, Group: 32},
		{Kind: quant.F8, Group: 128},
		{Kind: quant.CCQ275, Group: 64},
		{Kind: quant.CCQ25, Group: 64},
		{Kind: quant.CCQ2, Group: 64},
	} {
		for _, shape := range []struct{ rows, n, k int }{{1, 6144, 1024}, {1, 1024, 3072}, {1, 24576, 1024}, {4, 6144, 1024}, {64, 6144, 1024}} {
			b.Run(fmt.Sprintf("%v/M%d/N%d/K%d", format, shape.rows, shape.n, shape.k), func(b *testing.B) {
				benchLinear(b, format, shape.rows, shape.n, shape.k)
			})
		}
	}
}

func benchLinear(b *testing.B, format quant.Format, rows, n, k int) {
	dev := gputest.Open(b)
	set := kernels.New(dev)
	defer set.Release()
	alloc := func(bytes int, usage gpu.Usage) gpu.Buffer {
		buf, err := dev.NewBuffer("bench", int64(bytes), usage|gpu.UsageCopyDst)
		if err != nil {
			b.Fatal(err)
		}
		return buf
	}
	step := alloc(kernels.StepBytes, gpu.UsageUniform)
	if err := dev.WriteBuffer(step, 0, []byte{byte(rows), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		b.Fatal(err)
	}
	part := kernels.Part{Rows: n, Format: format, Data: alloc(n*format.RowBytes(k), gpu.UsageStorage)}
	if format.Group != 0 {
		part.Scales = alloc(n*format.ScaleBytes(k), gpu.UsageStorage)
	}
	op, err := set.Linear(kernels.LinearArgs{
		Rows: rows, X: alloc(4*rows*k, gpu.UsageStorage), W: kernels.Weight{Rows: n, K: k, Parts: []kernels.Part{part}},
		Y: alloc(4*rows*n, gpu.UsageStorage), Step: gpu.Binding{Buffer: step},
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := set.Compile(b.Context(), nil); err != nil {
		b.Fatal(err)
	}
	program, err := dev.NewProgram("bench", op.Record(rows))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(op.Traffic(rows))
	run := func() {
		if err := dev.Submit(program); err != nil {
			b.Fatal(err)
		}
		if err := dev.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	run() // compiles, on some drivers
	for b.Loop() {
		run()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n*k*rows)*360.7e6/1e6, "ms/token")
}
