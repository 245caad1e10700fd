package sample

import (
	"math"
	"slices"
)

// masks is what of a sequence decides which ids may not be chosen.
type masks struct {
	allowed []int32   // the only ids that may be, ascending, each once; nil: all
	words   [][]int32 // no output contains one
	endIDs  []int32   // ruled out as long as the output has fewer than minimum ids
	minimum int

	output int     // ids accepted so far
	tail   []int32 // the last of them, as many as the longest word has before its last
	most   int     // length that tail may have
}

// newMasks takes what p says about ids that exist.
func newMasks(p *Params, numTokens int) masks {
	m := masks{minimum: p.MinTokens}
	exists := func(id int32) bool { return id >= 0 && int(id) < numTokens }
	for _, id := range p.EndIDs {
		if exists(id) {
			m.endIDs = append(m.endIDs, id)
		}
	}
	if p.AllowedTokenIDs != nil {
		m.allowed = slices.Sorted(slices.Values(p.AllowedTokenIDs))
		m.allowed = slices.DeleteFunc(slices.Compact(m.allowed), func(id int32) bool { return !exists(id) })
	}
	for _, word := range p.BadWords {
		if n := len(word); n > 0 && exists(word[n-1]) {
			m.words = append(m.words, word)
			m.most = max(m.most, n-1)
		}
	}
	return m
}

// accept adds an id to the output.
func (m *masks) accept(id int32) {
	m.output++
	if m.most == 0 {
		return
	}
	if len(m.tail) == m.most {
		copy(m.tail, m.tail[1:])
		m.tail = m.tail[:m.most-1]
	}
	m.tail = append(m.tail, id)
}

// active reports whether an id is ruled out at the next step by the words or
// by the minimum.
func (m *masks) active() bool {
	return m.early() && len(m.endIDs) > 0 || slices.ContainsFunc(m.words, m.completes)
}

func (m *masks) early() bool { return m.output < m.minimum }

// completes reports whether the last id of word would complete it.
func (m *masks) completes(word []int32) bool {
	n := len(word) - 1
	return n <= len(m.tail) && slices.Equal(m.tail[len(m.tail)-n:], word[:n])
}

// mask writes -Inf for the ids that words and minimum rule out.
func (s *Sampler) mask(logits []float32) {
	out := func(id int32) {
		if int(id) < len(logits) {
			s.keep(logits, id)
			logits[id] = float32(math.Inf(-1))
		}
	}
	for _, word := range s.words {
		if s.completes(word) {
			out(word[len(word)-1])
		}
	}
	if s.early() {
		for _, id := range s.endIDs {
			out(id)
		}
	}
}

// gather takes the allowed ids and their logits into s.ids and s.logits.
// Whether the others are left out before or after bias and penalties makes
// no difference, for these change each logit by itself.
func (s *Sampler) gather(logits []float32) {
	s.ids, s.logits = s.ids[:0], s.logits[:0]
	for _, id := range s.allowed {
		if int(id) < len(logits) {
			s.ids, s.logits = append(s.ids, id), append(s.logits, logits[id])
		}
	}
}
