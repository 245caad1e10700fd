//go:build cgo && !js

package wgpunative_test

import (
	"slices"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/gputest"
)

const addOne = `
@group(0) @binding(0) var<storage, read_write> a: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) g: vec3<u32>) {
    if (g.x < arrayLength(&a)) { a[g.x] = a[g.x] + 1u; }
}`

func TestKernelRuns(t *testing.T) {
	for name, open := range map[string]func(testing.TB) gpu.Device{"adapter": gputest.Open, "defaults": gputest.OpenDefaultLimits} {
		t.Run(name, func(t *testing.T) {
			d := open(t)
			t.Logf("%+v %+v", d.Info(), d.Limits())
			out := gputest.Run(t, d, gputest.Kernel{
				Source:   addOne,
				Bindings: []gputest.Data{{Kind: gpu.BindReadWrite, Bytes: gputest.Words[uint32](1, 2, 3)}},
			})
			if got, want := gputest.As[uint32](out[0]), []uint32{2, 3, 4}; !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}
