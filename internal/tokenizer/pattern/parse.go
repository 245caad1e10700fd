package pattern

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

type nodeKind uint8

const (
	nodeEmpty nodeKind = iota
	nodeSet
	nodeCheck
	nodeConcat
	nodeAlternate
	nodeRepeat
	nodeLook
	nodeAtomic
)

type repeatMode uint8

const (
	eager repeatMode = iota
	lazy
	possessive
)

// node is a part of an expression.
type node struct {
	kind     nodeKind
	set      ranges     // nodeSet
	check    check      // nodeCheck
	subs     []*node    // the parts; one for repeats, lookaheads and atomic groups
	negate   bool       // nodeLook
	min, max int32      // nodeRepeat; max -1: no bound
	mode     repeatMode // nodeRepeat
}

// nullable reports whether n can match nothing.
func (n *node) nullable() bool {
	switch n.kind {
	case nodeSet:
		return false
	case nodeConcat:
		for _, sub := range n.subs {
			if !sub.nullable() {
				return false
			}
		}
		return true
	case nodeAlternate:
		for _, sub := range n.subs {
			if sub.nullable() {
				return true
			}
		}
		return false
	case nodeRepeat:
		return n.min == 0 || n.subs[0].nullable()
	case nodeAtomic:
		return n.subs[0].nullable()
	}
	return true
}

type parser struct {
	expr  string
	pos   int
	depth int
	fold  bool // (?i)
}

func parse(expr string) (*node, error) {
	if !utf8.ValidString(expr) {
		return nil, fmt.Errorf("expression is not valid UTF-8")
	}
	p := &parser{expr: expr}
	n, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if p.pos < len(expr) {
		return nil, p.failf("unmatched )")
	}
	return n, nil
}

// failf is an error with the place where the parser stands.
func (p *parser) failf(format string, args ...any) error {
	return fmt.Errorf("at byte %d: "+format, append([]any{p.pos}, args...)...)
}

func (p *parser) more() bool { return p.pos < len(p.expr) }

// take moves past s if it stands here.
func (p *parser) take(s string) bool {
	if !strings.HasPrefix(p.expr[p.pos:], s) {
		return false
	}
	p.pos += len(s)
	return true
}

func (p *parser) rune() rune {
	r, n := utf8.DecodeRuneInString(p.expr[p.pos:])
	p.pos += n
	return r
}

func (p *parser) alternatives() (*node, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.failf("groups are nested more than %d deep", maxDepth)
	}
	defer func() { p.depth-- }()
	var subs []*node
	for {
		n, err := p.sequence()
		if err != nil {
			return nil, err
		}
		subs = append(subs, n)
		if !p.take("|") {
			break
		}
	}
	if len(subs) == 1 {
		return subs[0], nil
	}
	return &node{kind: nodeAlternate, subs: subs}, nil
}

func (p *parser) sequence() (*node, error) {
	n := &node{kind: nodeConcat}
	for p.more() && p.expr[p.pos] != '|' && p.expr[p.pos] != ')' {
		sub, err := p.atom()
		if err != nil {
			return nil, err
		}
		for {
			repeated, err := p.quantifier(sub)
			if err != nil {
				return nil, err
			}
			if repeated == sub {
				break
			}
			sub = repeated
		}
		n.subs = append(n.subs, sub)
	}
	return n, nil
}

// quantifier returns n with the quantifier that stands here, n itself if
// there is none.
func (p *parser) quantifier(n *node) (*node, error) {
	r := &node{kind: nodeRepeat, subs: []*node{n}, max: -1}
	switch {
	case p.take("*"):
	case p.take("+"):
		r.min = 1
	case p.take("?"):
		r.max = 1
	case p.more() && p.expr[p.pos] == '{':
		size, least, most := p.braces()
		if size == 0 {
			return n, nil // an ordinary brace
		}
		if least > maxRepeat || most > maxRepeat || most >= 0 && most < least {
			return nil, p.failf("the repetition %s is out of order or above %d", p.expr[p.pos:p.pos+size], maxRepeat)
		}
		p.pos += size
		r.min, r.max = least, most
		// Oniguruma reads {n,m}+ as a repetition of a repetition.
		if p.take("?") {
			r.mode = lazy
		}
		return r, nil
	default:
		return n, nil
	}
	switch {
	case p.take("?"):
		r.mode = lazy
	case p.take("+"):
		r.mode = possessive
	}
	return r, nil
}

// braces reads {n}, {n,}, {,m} or {n,m} and returns its size, 0 if what
// stands here is none of these.
func (p *parser) braces() (size int, least, most int32) {
	end := strings.IndexByte(p.expr[p.pos:], '}')
	if end < 0 || end > 12 {
		return 0, 0, 0
	}
	from, to, two := strings.Cut(p.expr[p.pos+1:p.pos+end], ",")
	number := func(s string, absent int32) (int32, bool) {
		if s == "" {
			return absent, true
		}
		n, err := strconv.ParseUint(s, 10, 31)
		return int32(n), err == nil
	}
	least, ok1 := number(from, 0)
	most, ok2 := number(to, -1)
	if !ok1 || !ok2 || from == "" && to == "" {
		return 0, 0, 0
	}
	if !two {
		most = least
	}
	return end + 1, least, most
}

func (p *parser) atom() (*node, error) {
	switch {
	case p.take("("):
		return p.group()
	case p.take("["):
		set, err := p.class()
		if err != nil {
			return nil, err
		}
		return p.charSet(set), nil
	case p.take("."):
		return &node{kind: nodeSet, set: ranges{{'\n', '\n'}}.complement()}, nil
	case p.take("^"):
		return &node{kind: nodeCheck, check: checkLineStart}, nil
	case p.take("$"):
		return &node{kind: nodeCheck, check: checkLineEnd}, nil
	case p.take(`\`):
		for c, check := range map[string]check{"A": checkTextStart, "z": checkTextEnd, "Z": checkLastLine, "b": checkWord, "B": checkNotWord} {
			if p.take(c) {
				return &node{kind: nodeCheck, check: check}, nil
			}
		}
		set, _, err := p.escape(bareWord)
		if err != nil {
			return nil, err
		}
		return p.charSet(set), nil
	case strings.ContainsRune("*+?", rune(p.expr[p.pos])):
		return nil, p.failf("nothing to repeat before %q", p.expr[p.pos])
	}
	r := p.rune()
	return p.charSet(ranges{{r, r}}), nil
}

func (p *parser) charSet(set ranges) *node {
	if p.fold {
		set = set.fold()
	}
	return &node{kind: nodeSet, set: set}
}

// group reads what follows an opening parenthesis, with the closing one.
func (p *parser) group() (*node, error) {
	fold := p.fold
	wrap := func(n *node) *node { return n }
	look := func(negate bool) func(*node) *node {
		return func(n *node) *node { return &node{kind: nodeLook, negate: negate, subs: []*node{n}} }
	}
	switch {
	case p.take("?:"):
	case p.take("?="):
		wrap = look(false)
	case p.take("?!"):
		wrap = look(true)
	case p.take("?>"):
		wrap = func(n *node) *node { return &node{kind: nodeAtomic, subs: []*node{n}} }
	case p.take("?i:"):
		p.fold = true
	case p.take("?-i:"):
		p.fold = false
	case p.take("?i)"):
		// To the end of the enclosing group, which restores it.
		p.fold = true
		rest, err := p.alternatives()
		p.fold = fold
		return rest, err
	case p.more() && p.expr[p.pos] == '?':
		end := min(p.pos+3, len(p.expr))
		return nil, p.failf("the group (%s is not supported", strings.ToValidUTF8(p.expr[p.pos:end], ""))
	}
	n, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	p.fold = fold
	if !p.take(")") {
		return nil, p.failf("a group is not closed")
	}
	return wrap(n), nil
}
