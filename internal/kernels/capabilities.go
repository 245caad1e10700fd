package kernels

import (
	"slices"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/wgsl"
)

// Capability is something beyond the portable subset of WebGPU that variants of kernels need. A variant that needs it has its name at
// the end of its own, and is never the default: only measuring on the adapter chooses it (Tuner).
type Capability struct {
	Name     string   `json:"name"`
	Features []string `json:"features"` // of gpu.Info, all of which it takes
	Kernels  []string `json:"kernels"`  // that have such variants

	also func(gpu.Info) bool // what it takes beside features
}

const subgroups = "subgroups"

// Capabilities lists all of them. It is the one place that says which variant needs what.
func Capabilities() []Capability {
	sub := Capability{
		Name: subgroups, Features: []string{"subgroups", "subgroup_id"},
		also: func(info gpu.Info) bool {
			return info.SubgroupMin >= leastSegment && info.SubgroupMax >= info.SubgroupMin
		},
	}
	for _, k := range wgsl.Kernels() {
		if _, ok := wgsl.WithSubgroups(k.Libs); ok {
			sub.Kernels = append(sub.Kernels, k.Name)
		}
	}
	return []Capability{sub}
}

// Has says whether a device has the capability.
func (c Capability) Has(info gpu.Info) bool {
	for _, f := range c.Features {
		if !slices.Contains(info.Features, f) {
			return false
		}
	}
	return c.also(info)
}

// The constant SEGMENT of lib_place_subgroups.
const (
	leastSegment = 4
	mostSegment  = 32
)

// sizes are those of the subgroups that a device may form; 0 says that kernels cannot use them.
type sizes struct{ min, max int }

func subgroupSizes(info gpu.Info) sizes {
	for _, c := range Capabilities() {
		if c.Name == subgroups && c.Has(info) {
			return sizes{info.SubgroupMin, info.SubgroupMax}
		}
	}
	return sizes{}
}

// segment is how many neighbours of a workgroup of wg invocations are members of one subgroup, whichever of its sizes the driver
// takes; 0 says that they need not be, or that there are no subgroups.
func (s *Set) segment(wg int) int {
	if s.subgroups.max == 0 || wg%s.subgroups.max != 0 {
		return 0
	}
	if s.tuning.Segment > 0 {
		return s.tuning.Segment
	}
	return min(s.subgroups.min, mostSegment)
}
