//go:build !js

package conformance_test

import (
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/conformance"
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/cpu"
	"github.com/pagelight/pagelight/internal/gpu/gputest"
)

// TestNative runs everything on the native adapter.
func TestNative(t *testing.T) { full(t, gputest.Open(t)) }

// TestNativeDefaultLimits runs everything on a device that has the limits which every browser guarantees, and no more.
func TestNativeDefaultLimits(t *testing.T) { full(t, gputest.OpenDefaultLimits(t)) }

// TestCPU runs everything on the driver that runs ref itself: what the ops pass to a kernel must mean the same there.
func TestCPU(t *testing.T) {
	dev, err := cpu.Open(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dev.Close)
	full(t, dev)
}

// TestQuickIsQuick holds the self-test, which people wait for, to its time.
func TestQuickIsQuick(t *testing.T) {
	dev := gputest.Open(t)
	start := time.Now()
	for _, c := range conformance.Cases(conformance.Quick) {
		if err := c.Run(t.Context(), dev); err != nil {
			t.Error(err)
		}
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("the self-test took %v", took)
	} else {
		t.Logf("the self-test took %v", took)
	}
}

func full(t *testing.T, dev gpu.Device) {
	for _, c := range conformance.Cases(conformance.Full) {
		t.Run(c.Name, func(t *testing.T) {
			result, err := c.Measure(t.Context(), dev)
			if err != nil {
				t.Fatal(err)
			}
			if result.Shapes == 0 {
				t.Skipf("%s lacks what this needs", dev.Info().Name)
			}
			t.Logf("%d shapes, %d values, max abs %.2g, max rel %.2g", result.Shapes, result.Values, result.MaxAbs, result.MaxRel)
		})
	}
}
