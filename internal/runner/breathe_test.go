package runner

import (
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
)

// groupCounter counts bind groups, which stand for the work of making ops.
type groupCounter struct {
	gpu.Device
	made int
}

func (d *groupCounter) NewBindGroup(label string, layout []gpu.BindingKind, b []gpu.Binding) (gpu.BindGroup, error) {
	d.made++
	return d.Device.NewBindGroup(label, layout, b)
}

// TestOthersHaveTheirTurnWhileOpening: at each bind group, and while the angles of all positions are computed.
func TestOthersHaveTheirTurnWhileOpening(t *testing.T) {
	dev := &groupCounter{Device: processor(t)}
	turns, angles := 0, 0
	openGPUKernels(t, dev, func(c *Config) {
		c.MaxModelLen = 512
		c.Breathe = func() {
			if turns++; dev.made == 0 {
				angles++
			}
		}
	})
	if dev.made == 0 || turns < dev.made || angles < 2 {
		t.Errorf("%d turns for %d bind groups, %d of them before the first", turns, dev.made, angles)
	}
}
