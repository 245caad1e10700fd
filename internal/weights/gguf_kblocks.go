package weights

// Blocks of 256 weights with two levels of scales: a group has the small whole numbers sc and mc, the block two halves d and
// dmin, and weight = d*sc*code - dmin*mc. Q3_K and Q6_K have no minima; their codes are signed with an offset, which here becomes
// a minimum: d*sc*(code-z) is d*sc*code - (z*d)*sc.

// putSuper writes the scales of a block; sc and mc have one number a group.
func putSuper(dst []byte, d, dmin uint16, sc, mc []int8) {
	putScale(dst, d, dmin)
	for i := range sc {
		dst[4+2*i], dst[5+2*i] = byte(sc[i]), byte(mc[i])
	}
}

// pairsAt are the 32 codes of run r (of 8) where 64 bytes hold two bits of each code: byte l of the first half has code l in its
// lowest bits, code 32+l above it, and so on, and the second half the codes from 128.
func pairsAt(qs []byte, r int) run {
	qs, shift := qs[r/4*32:][:32], r%4*2
	var c run
	for i := range c {
		c[i] = load8(qs[8*i:]) >> shift & twos
	}
	return c
}

// nibblesAt are the 32 codes of run r where each 32 bytes hold one run in their low halves and the next in their high halves.
func nibblesAt(qs []byte, r int) run {
	qs, shift := qs[r/2*32:][:32], r%2*4
	var c run
	for i := range c {
		c[i] = load8(qs[8*i:]) >> shift & fours
	}
	return c
}

// addPlane adds bit r of 32 bytes to the codes of run r, at bit to.
func addPlane(c *run, bits []byte, r, to int) {
	for i := range c {
		c[i] |= load8(bits[8*i:]) >> r & ones << to
	}
}

// 16 bytes: sc in the low half, mc in the high half | 64 bytes of codes | d f16 | dmin f16
func unpackQ2K(b, data, scales []byte) error {
	d, dmin, err := halves(b[80:])
	var sc, mc [16]int8
	for i := range sc {
		sc[i], mc[i] = int8(b[i]&15), int8(b[i]>>4)
	}
	for r := range 8 {
		c := pairsAt(b[16:80], r)
		data = c.store(data, 2)
	}
	putSuper(scales, d, dmin, sc[:], mc[:])
	return err
}

// 32 bytes of third bits | 64 bytes of codes | 12 bytes of sc+32 | d f16; weight = d*sc*(code-4)
//
// Of the 16 numbers sc+32, the low four bits lie in the halves of the first 8 bytes, the upper two in the last 4 bytes.
func unpackQ3K(b, data, scales []byte) error {
	d, err := half(b[108:])
	if err != nil {
		return err
	}
	dmin, err := times(d, 4)
	var sc [16]int8
	for i := range sc {
		low := b[96+i%8] >> (i / 8 * 4) & 15
		high := b[104+i%4] >> (i / 4 * 2) & 3
		sc[i] = int8(low|high<<4) - 32
	}
	for r := range 8 {
		c := pairsAt(b[32:96], r)
		addPlane(&c, b[:32], r, 2)
		data = c.store(data, 3)
	}
	putSuper(scales, d, dmin, sc[:], sc[:])
	return err
}

// sixBits takes the 12 bytes apart that hold eight sc and eight mc of Q4_K and Q5_K: the first four of each in the low six bits of
// bytes 0..3 and 4..7; of the others the low four bits in the halves of bytes 8..11, and the upper two above the first ones.
func sixBits(b []byte) (sc, mc [8]int8) {
	for i := range 4 {
		sc[i], mc[i] = int8(b[i]&63), int8(b[4+i]&63)
		sc[4+i] = int8(b[8+i]&15 | b[i]>>6<<4)
		mc[4+i] = int8(b[8+i]>>4 | b[4+i]>>6<<4)
	}
	return sc, mc
}

// d f16 | dmin f16 | 12 bytes of sc and mc | 128 bytes of codes
func unpackQ4K(b, data, scales []byte) error {
	d, dmin, err := halves(b)
	sc, mc := sixBits(b[4:16])
	for r := range 8 {
		c := nibblesAt(b[16:], r)
		data = c.store(data, 4)
	}
	putSuper(scales, d, dmin, sc[:], mc[:])
	return err
}

// d f16 | dmin f16 | 12 bytes of sc and mc | 32 bytes of fifth bits | 128 bytes of codes
func unpackQ5K(b, data, scales []byte) error {
	d, dmin, err := halves(b)
	sc, mc := sixBits(b[4:16])
	for r := range 8 {
		c := nibblesAt(b[48:], r)
		addPlane(&c, b[16:48], r, 4)
		data = c.store(data, 5)
	}
	putSuper(scales, d, dmin, sc[:], mc[:])
	return err
}

// 128 bytes of low halves | 64 bytes of upper two bits | 16 signed bytes sc | d f16; weight = d*sc*(code-32)
//
// In each half of the block, 64 bytes hold the runs 0 and 1 in their low halves and 2 and 3 in their high halves.
func unpackQ6K(b, data, scales []byte) error {
	d, err := half(b[208:])
	if err != nil {
		return err
	}
	dmin, err := times(d, 32)
	var sc [16]int8
	for i := range sc {
		sc[i] = int8(b[192+i])
	}
	for r := range 8 {
		low, shift := b[r/4*64+r%2*32:][:32], r%4/2*4
		high := pairsAt(b[128:192], r)
		var c run
		for i := range c {
			c[i] = load8(low[8*i:])>>shift&fours | high[i]<<4
		}
		data = c.store(data, 6)
	}
	putSuper(scales, d, dmin, sc[:], sc[:])
	return err
}
