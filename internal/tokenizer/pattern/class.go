package pattern

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// class reads what follows an opening bracket, with the closing one.
func (p *parser) class() (ranges, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.failf("classes are nested more than %d deep", maxDepth)
	}
	defer func() { p.depth-- }()
	negate := p.take("^")
	var (
		set  []span
		both ranges // what stands before the last &&
		and  bool
	)
	for first := true; ; first = false {
		switch {
		case !p.more():
			return nil, p.failf("a class is not closed")
		case !first && p.take("]"):
			result := tidy(set)
			if and {
				result = both.intersect(result)
			}
			if negate {
				result = result.complement()
			}
			return result, nil
		case p.take("&&"):
			if both = tidy(set); and {
				return nil, p.failf("more than one && in a class is not supported")
			}
			and, set = true, nil
			continue
		case p.take("[:"):
			return nil, p.failf("POSIX classes are not supported; \\p{...} is")
		case p.take("["):
			inner, err := p.class()
			if err != nil {
				return nil, err
			}
			set = append(set, inner...)
			continue
		}
		item, single, err := p.classItem()
		if err != nil {
			return nil, err
		}
		// A hyphen before the closing bracket, or after a class, is itself.
		if rest := p.expr[p.pos:]; single && len(rest) > 1 && rest[0] == '-' && rest[1] != ']' {
			p.pos++
			last, single, err := p.classItem()
			switch {
			case err != nil:
				return nil, err
			case !single || last[0].lo < item[0].lo:
				return nil, p.failf("a range in a class is out of order")
			}
			item = ranges{{item[0].lo, last[0].lo}}
		}
		set = append(set, item...)
	}
}

func (p *parser) classItem() (set ranges, single bool, err error) {
	if p.take(`\`) {
		return p.escape(word)
	}
	if !p.more() {
		return nil, false, p.failf("a class is not closed")
	}
	r := p.rune()
	return ranges{{r, r}}, true, nil
}

// escape reads what follows a backslash: a class of characters, or a single
// one. word gives the set of \w.
func (p *parser) escape(word func() ranges) (set ranges, single bool, err error) {
	if !p.more() {
		return nil, false, p.failf("nothing follows a backslash")
	}
	at := p.pos
	one := func(r rune) (ranges, bool, error) { return ranges{{r, r}}, true, nil }
	switch c := p.rune(); c {
	case 's':
		return space(), false, nil
	case 'S':
		return space().complement(), false, nil
	case 'd':
		return digit(), false, nil
	case 'D':
		return digit().complement(), false, nil
	case 'w':
		return word(), false, nil
	case 'W':
		return word().complement(), false, nil
	case 'p', 'P':
		set, err := p.property()
		if c == 'P' {
			set = set.complement()
		}
		return set, false, err
	case 'n':
		return one('\n')
	case 'r':
		return one('\r')
	case 't':
		return one('\t')
	case 'f':
		return one('\f')
	case 'v':
		return one('\v')
	case 'a':
		return one('\a')
	case 'e':
		return one(0x1b)
	case 'x':
		return p.hex()
	case 'u':
		if r, ok := p.digits(4); ok {
			return one(r)
		}
	default:
		if c >= utf8.RuneSelf || !unicode.IsLetter(c) && !unicode.IsDigit(c) {
			return one(c)
		}
	}
	p.pos = at
	return nil, false, p.failf("the escape \\%c is not supported", p.expr[at])
}

// hex reads what follows \x: two digits, or up to eight in braces.
func (p *parser) hex() (ranges, bool, error) {
	if !p.take("{") {
		r, ok := p.digits(2)
		if !ok {
			return nil, false, p.failf("\\x needs two hexadecimal digits")
		}
		if r >= utf8.RuneSelf {
			return nil, false, p.failf("\\x%x is a byte and no character", r)
		}
		return ranges{{r, r}}, true, nil
	}
	end := strings.IndexByte(p.expr[p.pos:], '}')
	if end > 0 && end <= 8 {
		if r, ok := p.digits(end); ok && p.take("}") {
			return ranges{{r, r}}, true, nil
		}
	}
	return nil, false, p.failf("\\x{...} is no character")
}

func (p *parser) digits(n int) (rune, bool) {
	if p.pos+n > len(p.expr) {
		return 0, false
	}
	v, err := strconv.ParseUint(p.expr[p.pos:p.pos+n], 16, 32)
	if err != nil || v > unicode.MaxRune {
		return 0, false
	}
	p.pos += n
	return rune(v), true
}

// property reads what follows \p: {Name}, {^Name} or one letter.
func (p *parser) property() (ranges, error) {
	if !p.take("{") {
		if p.more() {
			if set, ok := property(p.expr[p.pos : p.pos+1]); ok {
				p.pos++
				return set, nil
			}
		}
		return nil, p.failf("no property follows \\p")
	}
	end := strings.IndexByte(p.expr[p.pos:], '}')
	if end < 0 {
		return nil, p.failf("a property is not closed")
	}
	name := p.expr[p.pos : p.pos+end]
	plain, negate := strings.CutPrefix(name, "^")
	set, ok := property(plain)
	if !ok {
		return nil, p.failf("the property %.40q is not supported", name)
	}
	p.pos += end + 1
	if negate {
		set = set.complement()
	}
	return set, nil
}
