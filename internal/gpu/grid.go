package gpu

import "fmt"

// Grid spreads n workgroups over x and y so that neither exceeds max (65,535 in WebGPU). A kernel finds its place as
// y * num_workgroups.x + x and returns when that is n or more. z is passed through.
func Grid(n, z, max int) [3]uint32 {
	if n < 1 || z < 1 || z > max {
		panic(fmt.Sprintf("BUG: grid of %d x %d workgroups", n, z))
	}
	x := min(n, max)
	y := (n + x - 1) / x
	return [3]uint32{uint32(x), uint32(y), uint32(z)}
}
