package kernels

import (
	"fmt"
	"slices"

	"github.com/pagelight/pagelight/wgsl"
)

// fourVariant is one shape of the kernels that take four rows of weights at a time: lanes invocations share 4*fours rows. With a segment
// they add up by subgroups.
type fourVariant struct{ fours, wg, lanes, segment int }

func (v fourVariant) String() string {
	name := fmt.Sprintf("%dx%d", 4*v.fours, v.wg)
	if v.segment > 0 {
		name += " " + subgroups
	}
	return name
}

// rows is how many rows of weights a workgroup has.
func (v fourVariant) rows() int { return 4 * v.fours * v.wg / v.lanes }

// consts are those of lib_norm_linear.
func (v fourVariant) consts(k int) wgsl.Consts {
	c := wgsl.Consts{"WG": uint32(v.wg), "LANES": uint32(v.lanes), "FOURS": uint32(v.fours), "K": uint32(k)}
	if v.segment > 0 {
		c["SEGMENT"] = uint32(v.segment)
	}
	return c
}

// storage is the workgroup memory that lib_norm_linear takes, in bytes.
func (v fourVariant) storage() int {
	if v.segment > 0 {
		return 144*v.lanes + 4*v.wg + 16*(v.fours+1)*v.wg/v.segment
	}
	return 144*v.lanes + (16*v.fours+4)*v.wg
}

// fourLanes is how many invocations share rows of k inputs: as few as leave nobody more than one chunk of 32 inputs, or where that
// are too many, the fewest that need the fewest chunks.
func fourLanes(k int) int {
	best, chunks := 0, 0
	for _, lanes := range []int{32, 64, 96} {
		if c := ceil(k, 32*lanes); best == 0 || c < chunks {
			best, chunks = lanes, c
		}
	}
	return best
}

// headRows is the number of rows from which on a layer is bound by memory, like an LM head, and not by latency.
const headRows = 16384

// fourVariants lists the shapes for n rows of k inputs that fit the device, the default first; most says that it is the one with
// the largest workgroups, which pays where each of them has much to do before it begins.
func (s *Set) fourVariants(n, k int, most bool) (list []fourVariant) {
	lanes := fourLanes(k)
	sizes := map[int][]int{32: {64, 128, 256}, 64: {128, 64, 256}, 96: {96, 192}}[lanes]
	fours := []int{1, 2}
	if n >= headRows {
		fours = []int{2, 1}
		if lanes != 96 {
			sizes = []int{128, 64, 256}
		}
	}
	if most {
		slices.Sort(sizes)
		slices.Reverse(sizes)
	}
	fit := func(wg, f, segment int) {
		v := fourVariant{f, wg, lanes, segment}
		if wg%lanes == 0 && wg <= s.limits.MaxInvocations && v.storage() <= s.limits.MaxWorkgroupMemory {
			list = append(list, v)
		}
	}
	for _, f := range fours {
		for _, wg := range sizes {
			fit(wg, f, 0)
		}
	}
	if lanes == mostSegment {
		sizes = append(sizes, lanes) // a workgroup of one subgroup has nobody to wait for
	}
	for _, f := range fours {
		for _, wg := range sizes {
			if segment := s.segment(wg); segment > 0 {
				fit(wg, f, segment)
			}
		}
	}
	return list
}

// chooseFour picks one of fourVariants for a layer of n rows of k inputs; key says what else its speed depends on.
func (s *Set) chooseFour(key string, n, k int, most bool) fourVariant {
	list := s.fourVariants(n, k, most)
	names := make([]string, len(list))
	for i, v := range list {
		names[i] = v.String()
	}
	chosen := s.choose(fmt.Sprintf("%s %dx%d", key, k, n), 1, names...)
	for _, v := range list {
		if v.String() == chosen {
			return v
		}
	}
	panic("BUG: no variant " + chosen)
}
