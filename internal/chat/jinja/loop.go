package jinja

import "fmt"

// loopObject is the variable "loop" of a for statement.
type loopObject struct {
	items   []Value
	at      int // index of the current round
	depth   int // 0 for the outermost of recursive loops
	node    *forNode
	scope   *scope // that the statement stands in
	changed *list  // the last arguments of changed(), nil before the first
}

func (l *loopObject) attribute(name string) (Value, bool) {
	n, i := int64(len(l.items)), int64(l.at)
	switch name {
	case "index":
		return i + 1, true
	case "index0":
		return i, true
	case "revindex":
		return n - i, true
	case "revindex0":
		return n - i - 1, true
	case "first":
		return i == 0, true
	case "last":
		return i == n-1, true
	case "length":
		return n, true
	case "depth":
		return int64(l.depth) + 1, true
	case "depth0":
		return int64(l.depth), true
	case "previtem":
		if i == 0 {
			return &undefined{"there is no previous item"}, true
		}
		return l.items[i-1], true
	case "nextitem":
		if i == n-1 {
			return &undefined{"there is no next item"}, true
		}
		return l.items[i+1], true
	case "cycle":
		return &function{name: "loop.cycle", call: func(_ *run, a args) (Value, error) {
			if len(a.pos) == 0 {
				return nil, fmt.Errorf("no items for cycling given")
			}
			return a.pos[l.at%len(a.pos)], nil
		}}, true
	case "changed":
		return &function{name: "loop.changed", call: func(r *run, a args) (Value, error) {
			now := newTuple(a.pos...)
			if l.changed != nil {
				if same, err := r.equal(now, l.changed); err != nil || same {
					return false, err
				}
			}
			l.changed = now
			return true, nil
		}}, true
	}
	return nil, false
}

// recurse is loop(items) in a recursive for statement.
func (l *loopObject) recurse(r *run, a args) (Value, error) {
	if !l.node.recursive {
		return nil, fmt.Errorf("the loop must have the 'recursive' marker to be called recursively")
	}
	if len(a.pos) != 1 || len(a.names) > 0 {
		return nil, fmt.Errorf("loop() takes one argument")
	}
	text, err := r.capture(func() error {
		old := r.scope
		r.scope = l.scope
		err := r.loop(l.node, a.pos[0], l.depth+1)
		r.scope = old
		return err
	})
	return text, err
}
