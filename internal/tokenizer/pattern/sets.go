package pattern

import (
	"encoding/binary"
	"slices"
	"sort"
	"sync"
	"unicode"
	"unicode/utf8"
)

// span is the characters from lo to hi, both included.
type span struct{ lo, hi rune }

// ranges is a set of characters: sorted, apart, and not touching.
type ranges []span

// tidy sorts and joins spans.
func tidy(spans []span) ranges {
	slices.SortFunc(spans, func(a, b span) int { return int(a.lo - b.lo) })
	var out ranges
	for _, s := range spans {
		if n := len(out); n > 0 && s.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, s.hi)
			continue
		}
		out = append(out, s)
	}
	return out
}

func fromTable(t *unicode.RangeTable) ranges {
	var spans []span
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			spans = append(spans, span{lo, hi})
			return
		}
		for r := lo; r <= hi; r += stride {
			spans = append(spans, span{r, r})
		}
	}
	for _, r := range t.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range t.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return tidy(spans)
}

func (r ranges) union(other ranges) ranges { return tidy(slices.Concat(r, other)) }

func (r ranges) complement() ranges {
	var out ranges
	next := rune(0)
	for _, s := range r {
		if s.lo > next {
			out = append(out, span{next, s.lo - 1})
		}
		next = s.hi + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, span{next, unicode.MaxRune})
	}
	return out
}

func (r ranges) intersect(other ranges) ranges {
	return r.complement().union(other.complement()).complement()
}

// cased are the characters that differ from another in case only, some 3,000.
var cased = sync.OnceValue(func() (out []rune) {
	for _, t := range []*unicode.RangeTable{unicode.L, unicode.M, unicode.Nl, unicode.So} {
		for _, s := range fromTable(t) {
			for c := s.lo; c <= s.hi; c++ {
				if unicode.SimpleFold(c) != c {
					out = append(out, c)
				}
			}
		}
	}
	return out
})

// fold adds every character that differs from one of the set in case only.
func (r ranges) fold() ranges {
	spans := slices.Clone(r)
	for _, c := range cased() {
		if !r.has(c) {
			continue
		}
		for f := unicode.SimpleFold(c); f != c; f = unicode.SimpleFold(f) {
			spans = append(spans, span{f, f})
		}
	}
	return tidy(spans)
}

func (r ranges) has(c rune) bool {
	i := sort.Search(len(r), func(i int) bool { return r[i].hi >= c })
	return i < len(r) && r[i].lo <= c
}

// key is a string that equals another set's only if the sets are equal.
func (r ranges) key() string {
	b := make([]byte, 0, 8*len(r))
	for _, s := range r {
		b = binary.LittleEndian.AppendUint32(b, uint32(s.lo))
		b = binary.LittleEndian.AppendUint32(b, uint32(s.hi))
	}
	return string(b)
}

// set is ranges made quick to ask.
type set struct {
	ascii [2]uint64
	wide  ranges // from U+0080
}

func newSet(r ranges) set {
	var s set
	for c := range rune(utf8.RuneSelf) {
		if r.has(c) {
			s.ascii[c>>6] |= 1 << (c & 63)
		}
	}
	s.wide = r.intersect(ranges{{utf8.RuneSelf, unicode.MaxRune}})
	return s
}

// at returns the bytes of the character of the set that stands at pos, or 0.
func (s *set) at(text string, pos int) int {
	if pos >= len(text) {
		return 0
	}
	if c := text[pos]; c < utf8.RuneSelf {
		return int(s.ascii[c>>6] >> (c & 63) & 1)
	}
	r, n := utf8.DecodeRuneInString(text[pos:])
	lo, hi := 0, len(s.wide)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if s.wide[mid].hi < r {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(s.wide) && s.wide[lo].lo <= r {
		return n
	}
	return 0
}

func space() ranges { return fromTable(unicode.White_Space) }

func digit() ranges { return fromTable(unicode.Nd) }

// word is Oniguruma's \w inside of a class: letters, marks, digits, connectors and what Unicode calls alphabetic.
func word() ranges {
	return tidy(slices.Concat(fromTable(unicode.L), fromTable(unicode.M), fromTable(unicode.Nd), fromTable(unicode.Nl),
		fromTable(unicode.Pc), fromTable(unicode.Other_Alphabetic)))
}

// bareWord is its \w outside of a class and what \b looks at: there, the fractions and superscripts of Latin-1 count too.
func bareWord() ranges {
	return word().union(ranges{{0xb2, 0xb3}, {0xb9, 0xb9}, {0xbc, 0xbe}})
}

// property returns the set of \p{name}: a general category or a script.
func property(name string) (ranges, bool) {
	if t, ok := unicode.Categories[name]; ok {
		return fromTable(t), true
	}
	if t, ok := unicode.Scripts[name]; ok {
		return fromTable(t), true
	}
	return nil, false
}
