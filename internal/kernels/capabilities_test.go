package kernels

import (
	"slices"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
)

// infoDevice is a device of which only the description is asked.
type infoDevice struct {
	gpu.Device
	info gpu.Info
}

func (d *infoDevice) Info() gpu.Info     { return d.info }
func (d *infoDevice) Limits() gpu.Limits { return gpu.DefaultLimits }

// TestCapabilitiesDecideOnVariants: what a device lacks is no variant of its kernels, and what it has is none that is taken unasked.
func TestCapabilitiesDecideOnVariants(t *testing.T) {
	all := []string{"shader-f16", "subgroups", "subgroup_id"}
	for _, c := range []struct {
		info    gpu.Info
		segment int // of a workgroup of 64, 0: no variant
	}{
		{gpu.Info{Features: all, SubgroupMin: 32, SubgroupMax: 32}, 32},
		{gpu.Info{Features: all, SubgroupMin: 32, SubgroupMax: 64}, 32},
		{gpu.Info{Features: all, SubgroupMin: 64, SubgroupMax: 64}, 32},
		{gpu.Info{Features: all, SubgroupMin: 8, SubgroupMax: 32}, 8},
		{gpu.Info{Features: all, SubgroupMin: 4, SubgroupMax: 4}, 4},
		{gpu.Info{Features: all, SubgroupMin: 64, SubgroupMax: 512}, 0}, // not whole
		{gpu.Info{Features: all, SubgroupMin: 1, SubgroupMax: 1}, 0},
		{gpu.Info{Features: all}, 0},
		{gpu.Info{Features: all[:2], SubgroupMin: 32, SubgroupMax: 32}, 0},
		{gpu.Info{}, 0},
	} {
		s := New(&infoDevice{info: c.info})
		if got := s.segment(64); got != c.segment {
			t.Errorf("%+v: neighbours of %d, want %d", c.info, got, c.segment)
		}
		list := s.fourVariants(1024, 1024, false)
		if list[0].segment != 0 {
			t.Errorf("%+v: %v comes first", c.info, list)
		}
		if slices.ContainsFunc(list, func(v fourVariant) bool { return v.segment > 0 }) != (c.segment > 0) {
			t.Errorf("%+v: the variants are %v", c.info, list)
		}
	}
}

// TestCapabilitiesNameTheirKernels, whose texts differ as the table says.
func TestCapabilitiesNameTheirKernels(t *testing.T) {
	want := []string{"attn_linear", "head_argmax", "norm_linear", "paged_attn_few", "qkv_rope_store"}
	for _, c := range Capabilities() {
		if got := slices.Sorted(slices.Values(c.Kernels)); c.Name != "subgroups" || !slices.Equal(got, want) {
			t.Errorf("%s of %v, want subgroups of %v", c.Name, got, want)
		}
	}
	for segment, enabled := range []bool{false, true} {
		consts := map[string]uint32{"HEAD_DIM": 128}
		if enabled {
			consts["SEGMENT"] = 32
		}
		d, err := Describe("paged_attn_few", nil, consts)
		if err != nil || strings.HasPrefix(d.Source, "enable subgroups;\n") != enabled || strings.Contains(d.Source, "subgroupShuffleXor") != enabled {
			t.Errorf("variant %d: %v\n%.200s", segment, err, d.Source)
		}
	}
}
