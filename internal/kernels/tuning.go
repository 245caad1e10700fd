package kernels

import (
	"math"

	"github.com/pagelight/pagelight/internal/gpu"
)

// Tuning chooses among the variants of kernels.
type Tuning struct {
	// BarrierFree takes the _serial variants.
	BarrierFree bool
	// UniformX has Linear read its inputs as a uniform where LinearArgs allow; it goes with BarrierFree, and MatmulRows says
	// nothing then.
	UniformX bool
	// MatmulRows is the least number of rows for which Linear takes the kernel for many instead of that for few.
	MatmulRows int
	// GroupPairs is the least number of rows that are sent to an expert on average for which ExpertLinear groups them by expert.
	GroupPairs int
	// Fuse says that steps of at most FusedRows rows should use NormLinear and QKVRopeStore.
	Fuse bool
	// ShortContext is the longest context, at most 128 positions, for which fused steps compute attention and the layer after it in one
	// kernel (ShortBlock); 0: none.
	ShortContext int
	// PrefillRows is the least number of rows for which Attention no longer takes the kernel for few rows: one that tiles queries where
	// heads have more than 128 elements, else the one that serves all rows. The serial kernel serves both.
	PrefillRows int
	// SerialPart is the most positions that one invocation of the serial attention walks over, a multiple of 4; 0 is what
	// software adapters can. Longer contexts are cut.
	SerialPart int
	// Workgroups is how many keep the device busy: the fewer rows a step has, the more parts a context is cut into.
	Workgroups int
	// Choices says which variant an op is to take, by the op's key (see Set.choose): what measuring has found. Ops without an
	// entry take their first variant.
	Choices map[string]string
	// Prefer names variants, or ends of their names, that ops take, if they have them, where Choices say nothing: tests reach all of
	// them with it.
	Prefer []string
	// Segment is what kernels with subgroups take for the size of these; 0 is what the device says. Where subgroups are smaller, the
	// kernels notice and do without, which tests see in this way.
	Segment int
	// Deterministic makes every row independent of the step that it is computed in: the order of its sums depends on the
	// shapes of the model, on its position, and on nothing else. Linear and Attention then have one pipeline each for all
	// rows, and MatmulRows, PrefillRows and Workgroups say nothing.
	//
	// With BarrierFree it changes nothing: the serial kernels are of this kind anyway.
	Deterministic bool
}

// TuningFor is the choice that suits a device.
func TuningFor(info gpu.Info) Tuning {
	if info.Kind == gpu.KindCPU {
		// Its kernels have one way to compute, whatever the name.
		return Tuning{BarrierFree: true, MatmulRows: 1, GroupPairs: math.MaxInt32, PrefillRows: 1, Workgroups: 1, SerialPart: MaxPositions}
	}
	if info.BarrierFree {
		// Measured on llvmpipe only; SwiftShader takes seconds to compile eight tokens at a time.
		uniform := info.Vendor == "mesa"
		return Tuning{BarrierFree: true, UniformX: uniform, MatmulRows: 2, GroupPairs: 2, PrefillRows: 1, SerialPart: serialPart, Workgroups: 1}
	}
	return Tuning{MatmulRows: 33, GroupPairs: 4, PrefillRows: 257, Workgroups: 1024, Fuse: true, ShortContext: 128}
}
