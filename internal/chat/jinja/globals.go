package jinja

import (
	"errors"
	"fmt"
)

// maxRange is jinja2.sandbox.MAX_RANGE.
const maxRange = 100_000

// globals is the outermost scope of every run. It is never written.
var globals *scope

func init() {
	globals = &scope{}
	for name, call := range map[string]func(r *run, a args) (Value, error){
		"range":           globalRange,
		"dict":            globalDict,
		"namespace":       globalNamespace,
		"cycler":          globalCycler,
		"joiner":          globalJoiner,
		"raise_exception": globalRaise,
		"strftime_now":    globalStrftimeNow,
	} {
		globals.set(name, &function{name: name, call: call})
	}
}

func globalRange(r *run, a args) (Value, error) {
	if len(a.names) > 0 || len(a.pos) < 1 || len(a.pos) > 3 {
		return nil, errors.New("range expected 1 to 3 arguments without names")
	}
	var n [3]int64
	for i, v := range a.pos {
		var ok bool
		if n[i], ok = asInt(v); !ok {
			if u, is := v.(*undefined); is {
				return nil, u.err()
			}
			return nil, fmt.Errorf("%q object cannot be interpreted as an integer", typeName(v))
		}
	}
	start, stop, step := n[0], n[1], n[2]
	switch len(a.pos) {
	case 1:
		start, stop, step = 0, n[0], 1
	case 2:
		step = 1
	}
	if step == 0 {
		return nil, errors.New("range() arg 3 must not be zero")
	}
	count := uint64(0)
	if step > 0 && start < stop {
		count = (uint64(stop)-uint64(start)-1)/uint64(step) + 1
	} else if step < 0 && start > stop {
		count = (uint64(start)-uint64(stop)-1)/(-uint64(step)) + 1
	}
	if count > maxRange {
		return nil, limitf("range too big: the sandbox allows %d items", maxRange)
	}
	if err := r.items(int(count) * 2); err != nil {
		return nil, err
	}
	l := &list{kind: kindRange, items: make([]Value, count), name: fmt.Sprintf("range(%d, %d)", start, stop)}
	if step != 1 {
		l.name = fmt.Sprintf("range(%d, %d, %d)", start, stop, step)
	}
	for i := range l.items {
		l.items[i] = start + int64(i)*step
	}
	return l, nil
}

func globalDict(r *run, a args) (Value, error) {
	d := newDict()
	if len(a.pos) > 1 {
		return nil, fmt.Errorf("dict expected at most 1 argument, got %d", len(a.pos))
	}
	if len(a.pos) == 1 {
		pairs := a.pos[0]
		if from, ok := pairs.(*dict); ok {
			l, err := r.pairs(from, kindList, "")
			if err != nil {
				return nil, err
			}
			pairs = l
		}
		items, err := r.iterate(pairs)
		if err != nil {
			return nil, err
		}
		if err := r.items(min(6*len(items), r.limits.Items)); err != nil {
			return nil, err
		}
		for _, item := range items {
			pair, err := r.iterate(item)
			if err != nil {
				return nil, err
			}
			if len(pair) != 2 {
				return nil, errors.New("dict() needs pairs")
			}
			h, err := r.hash(pair[0])
			if err != nil {
				return nil, err
			}
			d.set(h, pair[0], pair[1])
		}
	}
	for i, name := range a.names {
		d.setString(name, a.vals[i])
	}
	return d, r.items(6 * len(a.names))
}

func globalNamespace(r *run, a args) (Value, error) {
	v, err := globalDict(r, a)
	if err != nil {
		return nil, err
	}
	d := v.(*dict)
	ns := &namespace{vars: map[string]Value{}}
	for i, k := range d.keys {
		name, ok := k.(string)
		if !ok {
			return nil, errors.New("the names in a namespace must be str")
		}
		ns.set(name, d.vals[i])
	}
	return ns, nil
}

func globalCycler(r *run, a args) (Value, error) {
	if len(a.pos) == 0 || len(a.names) > 0 {
		return nil, errors.New("at least one item has to be provided")
	}
	at := 0
	method := func(name string, f func() Value) Value {
		return &function{name: name, call: func(_ *run, a args) (Value, error) {
			_, err := a.bind(name, 0)
			return f(), err
		}}
	}
	next := method("next", func() Value {
		v := a.pos[at]
		at = (at + 1) % len(a.pos)
		return v
	})
	reset := method("reset", func() Value { at = 0; return nil })
	return &function{
		name: "cycler",
		call: func(*run, args) (Value, error) { return nil, errors.New("'Cycler' object is not callable") },
		attr: func(name string) (Value, bool) {
			switch name {
			case "next":
				return next, true
			case "reset":
				return reset, true
			case "current":
				return a.pos[at], true
			}
			return nil, false
		},
	}, r.items(8)
}

func globalJoiner(r *run, a args) (Value, error) {
	b, err := a.bind("joiner", 0, "sep")
	if err != nil {
		return nil, err
	}
	used := false
	return &function{name: "joiner", call: func(_ *run, a args) (Value, error) {
		if _, err := a.bind("joiner", 0); err != nil {
			return nil, err
		}
		if !used {
			used = true
			return "", nil
		}
		return b.value(0, ", "), nil
	}}, r.items(8)
}

func globalRaise(r *run, a args) (Value, error) {
	b, err := a.bind("raise_exception", 1, "message")
	if err != nil {
		return nil, err
	}
	s, err := r.str(b.vals[0])
	if err != nil {
		return nil, err
	}
	return nil, &RaisedError{s}
}

func globalStrftimeNow(r *run, a args) (Value, error) {
	b, err := a.bind("strftime_now", 1, "format")
	if err != nil {
		return nil, err
	}
	format, err := b.str(0, "")
	if err != nil {
		return nil, err
	}
	// The longest directive, %c, makes 24 bytes of 2.
	if err := r.text(12 * len(format)); err != nil {
		return nil, err
	}
	return strftime(r.now, format)
}
