package kernels

// moeMatmul is matmul for tiles of pairs.
func (s *Set) moeMatmul(tiles func(rows int) int) expertVariant {
	return expertVariant{
		name: "moe_matmul", consts: noConsts,
		grid: func(n, rows int) [3]uint32 { return [3]uint32{uint32(ceil(n, matmulTile)), uint32(tiles(rows)), 1} },
	}
}
