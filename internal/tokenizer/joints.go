package tokenizer

// joints is a Bloom filter of the pairs of characters (or bytes) that merging
// can ever put side by side into one piece. Between two that are not in it no
// merge happens, so the text is cut there and every part is merged alone:
// words, mostly. A false positive only makes a part longer.
type joints []uint64

// newJoints makes the filter of the pairs that each visits.
func newJoints(each func(visit func(left, right rune))) joints {
	pairs := 0
	each(func(_, _ rune) { pairs++ })
	words := 64
	for words*64 < 8*pairs && words < 1<<17 { // 8 bits a pair, at most 1 MiB
		words *= 2
	}
	j := make(joints, words)
	each(func(left, right rune) {
		h := jointHash(left, right)
		j[h>>6&uint64(words-1)] |= 1 << (h & 63)
	})
	return j
}

func (j joints) has(left, right rune) bool {
	h := jointHash(left, right)
	return j[h>>6&uint64(len(j)-1)]>>(h&63)&1 != 0
}

func jointHash(left, right rune) uint64 {
	h := (uint64(uint32(left))<<32 | uint64(uint32(right))) * 0x9E3779B97F4A7C15
	return h ^ h>>29
}
