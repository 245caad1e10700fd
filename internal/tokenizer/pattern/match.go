package pattern

import (
	"unicode/utf8"
)

// A search takes at most minSteps plus stepsPerByte times the text's length
// in steps. The expressions of real tokenizers need less than 20 a byte; one
// that needs more finds nothing in the rest of the text.
const (
	minSteps     = 1 << 16
	stepsPerByte = 256
)

// frame is a way that was not tried yet: go on at pc from pos. If the
// instruction before pc is a loop, further ways follow: each position from
// pos down to low, one character at a time.
type frame struct {
	pc         int32
	loop       int32 // its number, -1 for none
	pos        int
	low        int
	start, end int // of the run of characters that a loop has found
}

// failure says that a loop without an upper bound that was entered anywhere
// from start to end led to no match. That depends on nothing but the text
// after it, so no later attempt need try it again: this keeps "\s+$" on a
// million spaces from taking a million times a million steps.
type failure struct{ start, end int }

// search is the state of one pass over a text.
type search struct {
	p        *Pattern
	text     string
	stack    []frame
	failures []failure // [p.loops]
	steps    int
}

// All calls visit with each match in text, from left to right, apart from
// each other. A match can be empty, but not where the match before it ends.
func (p *Pattern) All(text string, visit func(start, end int)) {
	s, _ := p.searches.Get().(*search) // pieces are short and many
	if s == nil {
		s = &search{p: p, failures: make([]failure, p.loops)}
	}
	s.text, s.steps = text, minSteps+stepsPerByte*len(text)
	for i := range s.failures {
		s.failures[i] = failure{-1, -1}
	}
	defer p.release(s)
	last := -1 // end of the last match
	for start := 0; start <= len(text); {
		end, ok := s.run(0, start)
		if s.steps <= 0 {
			return
		}
		if !ok || end == start && start == last {
			start += width(text, start)
			continue
		}
		visit(start, end)
		last = end
		start = end
	}
}

// release keeps a search for the next text, but not the memory of a long
// one.
func (p *Pattern) release(s *search) {
	if s.text = ""; cap(s.stack) <= 1<<12 {
		s.stack = s.stack[:0]
		p.searches.Put(s)
	}
}

// width is the bytes of the character at pos, 1 at the end.
func width(text string, pos int) int {
	if pos >= len(text) || text[pos] < utf8.RuneSelf {
		return 1
	}
	_, n := utf8.DecodeRuneInString(text[pos:])
	return n
}

// run executes from pc at pos until a match, and returns where it ends.
func (s *search) run(pc int32, pos int) (end int, ok bool) {
	base := len(s.stack)
	for {
		if s.steps--; s.steps <= 0 {
			s.stack = s.stack[:base]
			return 0, false
		}
		next, alive := pc+1, false
		switch in := &s.p.prog[pc]; in.op {
		case opMatch:
			s.stack = s.stack[:base]
			return pos, true
		case opSet:
			if n := s.p.sets[in.set].at(s.text, pos); n > 0 {
				pos, alive = pos+n, true
			}
		case opLoop:
			pos, alive = s.loop(in, next, pos)
		case opSplit:
			s.stack = append(s.stack, frame{pc: in.y, loop: -1, pos: pos, low: pos})
			next, alive = in.x, true
		case opJump:
			next, alive = in.x, true
		case opCheck:
			alive = s.check(in.check, pos)
		case opLook:
			_, found := s.run(next, pos)
			next, alive = in.x, found != in.negate
		case opAtomic:
			next = in.x
			pos, alive = s.run(pc+1, pos)
		}
		if !alive {
			if next, pos, alive = s.back(base); !alive {
				return 0, false
			}
		}
		pc = next
	}
}

// back takes the next way from the stack; false if none is left above base.
func (s *search) back(base int) (pc int32, pos int, ok bool) {
	for len(s.stack) > base {
		f := &s.stack[len(s.stack)-1]
		if f.start == f.end { // of a split
			pc, pos = f.pc, f.pos
			s.stack = s.stack[:len(s.stack)-1]
			return pc, pos, true
		}
		if f.pos > f.low {
			_, n := utf8.DecodeLastRuneInString(s.text[:f.pos])
			f.pos -= n
			return f.pc, f.pos, true
		}
		if f.loop >= 0 {
			s.failures[f.loop] = failure{f.start, f.end}
		}
		s.stack = s.stack[:len(s.stack)-1]
	}
	return 0, 0, false
}

// loop takes as many characters as there are and leaves the shorter runs on
// the stack.
func (s *search) loop(in *inst, next int32, pos int) (end int, ok bool) {
	if in.loop >= 0 {
		if f := s.failures[in.loop]; f.start <= pos && pos <= f.end {
			return pos, false
		}
	}
	set := &s.p.sets[in.set]
	end = pos
	low, count := -1, int32(0)
	for {
		if count == in.min {
			low = end
		}
		if count == in.max {
			break
		}
		n := set.at(s.text, end)
		if n == 0 {
			break
		}
		end += n
		count++
	}
	s.steps -= int(count)
	if low < 0 {
		return pos, false
	}
	if in.possessive {
		low = end
	}
	if end > low || in.loop >= 0 && end > pos {
		s.stack = append(s.stack, frame{pc: next, loop: in.loop, pos: end, low: low, start: pos, end: end})
	}
	return end, true
}

func (s *search) check(c check, pos int) bool {
	switch c {
	case checkTextStart:
		return pos == 0
	case checkTextEnd:
		return pos == len(s.text)
	case checkLastLine:
		return pos == len(s.text) || s.text[pos:] == "\n"
	case checkLineStart:
		return pos == 0 || pos < len(s.text) && s.text[pos-1] == '\n'
	case checkLineEnd:
		return pos == len(s.text) || s.text[pos] == '\n'
	case checkWord, checkNotWord:
		_, n := utf8.DecodeLastRuneInString(s.text[:pos])
		before, after := s.p.word.at(s.text, pos-n) > 0 && n > 0, s.p.word.at(s.text, pos) > 0
		return (before != after) == (c == checkWord)
	}
	panic("BUG: unknown check")
}
