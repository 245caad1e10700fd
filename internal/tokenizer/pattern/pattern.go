// Package pattern finds the matches of the regular expressions by which
// tokenizer.json files split text before merging.
//
// It reads the part of Oniguruma's syntax that such files use and gives the
// matches that Oniguruma gives: leftmost, the first alternative that leads
// to a match, with lookahead, possessive quantifiers and Unicode properties,
// which package regexp leaves out. What is outside of that part is refused
// by name. Its time is bounded whatever the text and the expression. It must
// not know of tokens.
package pattern

import (
	"errors"
	"fmt"
	"sync"
)

const (
	maxExpr    = 1 << 14 // bytes of an expression
	maxDepth   = 100     // nested groups
	maxRepeat  = 1000    // the numbers of {n,m}
	maxProgram = 1 << 14 // instructions
)

// Pattern is a compiled expression. Any number of goroutines may use it.
type Pattern struct {
	expr string
	prog []inst
	sets []set
	word set // what \b looks at; empty where the expression has none
	// loops is the number of opLoop instructions without an upper bound; each has a number, which is its place in the
	// memory of a search.
	loops int

	searches sync.Pool // *search
}

// op is what an instruction does. Instructions that consume or check go on
// at the next one.
type op uint8

const (
	opSet    op = iota // one character of sets[set]
	opLoop             // min to max characters of sets[set], the most first
	opSplit            // go on at x; if that fails, at y
	opJump             // go on at x
	opLook             // the code from the next instruction to its opMatch matches here (or, negated, does not); go on at x
	opAtomic           // as opLook, but its match is consumed and not tried otherwise
	opCheck            // check holds here
	opMatch
)

// check is a condition on a position.
type check uint8

const (
	checkTextStart check = iota // \A
	checkTextEnd                // \z
	checkLastLine               // \Z: the end, or before a line feed at the end
	checkLineStart              // ^
	checkLineEnd                // $
	checkWord                   // \b
	checkNotWord                // \B
)

type inst struct {
	op         op
	check      check
	negate     bool // of opLook
	possessive bool // of opLoop: characters taken are not given back
	set        int32
	min, max   int32 // of opLoop; max -1: no bound
	loop       int32 // number of an opLoop without bound, else -1
	x, y       int32
}

// Compile reads an expression. Errors name what is not supported and where
// it stands.
func Compile(expr string) (*Pattern, error) {
	if len(expr) > maxExpr {
		return nil, fmt.Errorf("expression has %d bytes, more than the limit of %d", len(expr), maxExpr)
	}
	root, err := parse(expr)
	if err != nil {
		return nil, err
	}
	c := compiler{p: &Pattern{expr: expr}, sets: map[string]int32{}}
	if err := c.node(root); err != nil {
		return nil, err
	}
	if _, err := c.emit(inst{op: opMatch}); err != nil {
		return nil, err
	}
	return c.p, nil
}

func (p *Pattern) String() string { return p.expr }

// compiler turns a tree into instructions.
type compiler struct {
	p    *Pattern
	sets map[string]int32 // sets that are there already, by their ranges
}

func (c *compiler) emit(i inst) (at int32, err error) {
	if len(c.p.prog) >= maxProgram {
		return 0, fmt.Errorf("expression needs more than %d steps", maxProgram)
	}
	c.p.prog = append(c.p.prog, i)
	return int32(len(c.p.prog) - 1), nil
}

func (c *compiler) here() int32 { return int32(len(c.p.prog)) }

func (c *compiler) set(r ranges) int32 {
	key := r.key()
	if i, ok := c.sets[key]; ok {
		return i
	}
	c.p.sets = append(c.p.sets, newSet(r))
	i := int32(len(c.p.sets) - 1)
	c.sets[key] = i
	return i
}

func (c *compiler) node(n *node) error {
	switch n.kind {
	case nodeEmpty:
		return nil
	case nodeSet:
		_, err := c.emit(inst{op: opSet, set: c.set(n.set)})
		return err
	case nodeCheck:
		if n.check == checkWord || n.check == checkNotWord {
			c.p.word = newSet(bareWord())
		}
		_, err := c.emit(inst{op: opCheck, check: n.check})
		return err
	case nodeConcat:
		for _, sub := range n.subs {
			if err := c.node(sub); err != nil {
				return err
			}
		}
		return nil
	case nodeAlternate:
		return c.alternate(n.subs)
	case nodeRepeat:
		return c.repeat(n)
	case nodeLook, nodeAtomic:
		return c.enclosed(n)
	}
	panic("BUG: unknown node")
}

func (c *compiler) alternate(subs []*node) error {
	var ends []int32
	for i, sub := range subs {
		split := int32(-1)
		var err error
		if i < len(subs)-1 {
			if split, err = c.emit(inst{op: opSplit, x: c.here() + 1}); err != nil {
				return err
			}
		}
		if err := c.node(sub); err != nil {
			return err
		}
		if split >= 0 {
			end, err := c.emit(inst{op: opJump})
			if err != nil {
				return err
			}
			ends = append(ends, end)
			c.p.prog[split].y = c.here()
		}
	}
	for _, end := range ends {
		c.p.prog[end].x = c.here()
	}
	return nil
}

// enclosed emits a lookahead or an atomic group.
func (c *compiler) enclosed(n *node) error {
	kind := opLook
	if n.kind == nodeAtomic {
		kind = opAtomic
	}
	at, err := c.emit(inst{op: kind, negate: n.negate})
	if err != nil {
		return err
	}
	if err := c.node(n.subs[0]); err != nil {
		return err
	}
	if _, err := c.emit(inst{op: opMatch}); err != nil {
		return err
	}
	c.p.prog[at].x = c.here()
	return nil
}

func (c *compiler) repeat(n *node) error {
	sub := n.subs[0]
	if sub.kind == nodeSet && n.mode != lazy {
		loop := int32(-1)
		if n.max < 0 {
			loop = int32(c.p.loops)
			c.p.loops++
		}
		_, err := c.emit(inst{op: opLoop, set: c.set(sub.set), min: n.min, max: n.max, possessive: n.mode == possessive, loop: loop})
		return err
	}
	if n.mode == possessive {
		greedy := *n
		greedy.mode = eager
		return c.enclosed(&node{kind: nodeAtomic, subs: []*node{&greedy}})
	}
	if sub.nullable() {
		return errors.New("a repeated group that can match nothing is not supported")
	}
	for range n.min {
		if err := c.node(sub); err != nil {
			return err
		}
	}
	branch := func() (int32, error) { return c.emit(inst{op: opSplit}) }
	join := func(split, body, after int32) {
		if n.mode == lazy {
			body, after = after, body
		}
		c.p.prog[split].x, c.p.prog[split].y = body, after
	}
	if n.max < 0 {
		split, err := branch()
		if err != nil {
			return err
		}
		if err := c.node(sub); err != nil {
			return err
		}
		if _, err := c.emit(inst{op: opJump, x: split}); err != nil {
			return err
		}
		join(split, split+1, c.here())
		return nil
	}
	var splits []int32
	for range n.max - n.min {
		split, err := branch()
		if err != nil {
			return err
		}
		splits = append(splits, split)
		if err := c.node(sub); err != nil {
			return err
		}
	}
	for _, split := range splits {
		join(split, split+1, c.here())
	}
	return nil
}
