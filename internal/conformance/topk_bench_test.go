//go:build !js

package conformance_test

import (
	"fmt"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/gputest"
	"github.com/pagelight/pagelight/internal/kernels"
)

// BenchmarkTopK measures the selection of 64 candidates among ERNIE's 101,304 tokens.
func BenchmarkTopK(b *testing.B) {
	dev := gputest.Open(b)
	for _, rows := range []int{1, 16} {
		for race := range uint32(2) {
			b.Run(fmt.Sprintf("M%d/race%d", rows, race), func(b *testing.B) { benchTopK(b, dev, rows, race) })
		}
	}
}

func benchTopK(b *testing.B, dev gpu.Device, rows int, race uint32) {
	const vocab, limit, k = 103424, 101304, 64
	set := kernels.New(dev)
	defer set.Release()
	alloc := func(words []uint32) gpu.Buffer {
		buf, err := dev.NewBuffer("bench", 4*int64(len(words)), gpu.UsageStorage|gpu.UsageUniform|gpu.UsageCopyDst)
		if err == nil {
			err = dev.WriteBuffer(buf, 0, gpu.Bytes(words))
		}
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(buf.Release)
		return buf
	}
	logits, draws := make([]float32, rows*vocab), make([]uint32, 4*rows)
	for i := range logits {
		logits[i] = float32(uint32(i)*2654435761>>8) / (1 << 21) // spread over 0 to 8
	}
	words := make([]uint32, len(logits))
	copy(gpu.Bytes(words), gpu.Bytes(logits))
	for m := range rows {
		draws[4*m], draws[4*m+1], draws[4*m+2] = 0x3F800000, race, uint32(m)
	}
	op, err := set.TopK(kernels.TopKArgs{
		Rows: rows, Vocab: vocab, Limit: limit, K: k, Logits: alloc(words), Draws: alloc(draws), Top: alloc(make([]uint32, 2*rows*k)),
		Sums: alloc(make([]uint32, 4*rows)), Step: gpu.Binding{Buffer: alloc([]uint32{uint32(rows), 0, 0, 0})},
	})
	if err == nil {
		err = set.Compile(b.Context(), nil)
	}
	if err != nil {
		b.Fatal(err)
	}
	program, err := dev.NewProgram("bench", op.Record(rows))
	if err != nil {
		b.Fatal(err)
	}
	defer program.Release()
	b.SetBytes(op.Traffic(rows))
	for b.Loop() {
		if err := dev.Submit(program); err != nil {
			b.Fatal(err)
		}
		if err := dev.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
