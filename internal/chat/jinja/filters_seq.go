package jinja

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// getter reads an attribute path like "a.0.b" of an item, as make_attrgetter.
type getter struct {
	parts      []Value // string or int64
	ignoreCase bool
	def        Value // for what is undefined on the way; nil: none
}

func newGetter(path Value, ignoreCase bool, def Value) (getter, error) {
	g := getter{ignoreCase: ignoreCase, def: def}
	switch p := path.(type) {
	case nil:
	case string:
		for part := range strings.SplitSeq(p, ".") {
			if len(g.parts) >= 64 {
				return g, limitf("more than 64 parts in an attribute")
			}
			if part != "" && digits(part) == len(part) && len(part) < 10 {
				n := int64(0)
				for _, c := range part {
					n = n*10 + int64(c-'0')
				}
				g.parts = append(g.parts, n)
				continue
			}
			g.parts = append(g.parts, part)
		}
	case int64:
		g.parts = []Value{p}
	default:
		return g, fmt.Errorf("an attribute must be str or int, not %s", typeName(path))
	}
	return g, nil
}

func (r *run) get(g getter, item Value) (Value, error) {
	if err := r.step(1); err != nil {
		return nil, err
	}
	for _, part := range g.parts {
		var err error
		if item, err = r.getItem(item, part); err != nil {
			return nil, err
		}
		if _, missing := item.(*undefined); missing && g.def != nil {
			item = g.def
		}
	}
	if s, ok := item.(string); ok && g.ignoreCase {
		if err := r.alloc(len(s)); err != nil {
			return nil, err
		}
		return strings.ToLower(s), nil
	}
	return item, nil
}

// mapItems applies f to what v iterates over.
func (r *run) mapItems(v Value, f func(Value) (Value, error)) ([]Value, error) {
	items, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	if err := r.items(len(items)); err != nil {
		return nil, err
	}
	out := make([]Value, len(items))
	for i, item := range items {
		if err := r.step(1); err != nil {
			return nil, err
		}
		if out[i], err = f(item); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func filterMap(r *run, v Value, a args) (Value, error) {
	if len(a.pos) == 0 {
		b, err := a.bind("map", 0, "attribute", "default")
		if err != nil {
			return nil, err
		}
		if !b.has(0) {
			return nil, errors.New("map requires a filter argument")
		}
		g, err := newGetter(b.vals[0], false, b.value(1, nil))
		if err != nil {
			return nil, err
		}
		out, err := r.mapItems(v, func(item Value) (Value, error) { return r.get(g, item) })
		return newGenerator(out), err
	}
	name, ok := a.pos[0].(string)
	if !ok {
		return nil, fmt.Errorf("map: the name of a filter must be str, not %s", typeName(a.pos[0]))
	}
	a.pos = a.pos[1:]
	if err := r.enter(); err != nil { // map('map', ...) calls itself
		return nil, err
	}
	defer r.leave()
	out, err := r.mapItems(v, func(item Value) (Value, error) { return r.filter(name, item, a) })
	return newGenerator(out), err
}

// filterSelect is select, reject, selectattr and rejectattr.
func filterSelect(name string, byAttr, want bool) filterFunc {
	return func(r *run, v Value, a args) (Value, error) {
		var g getter
		if byAttr {
			if len(a.pos) == 0 {
				return nil, fmt.Errorf("%s: missing parameter for attribute name", name)
			}
			var err error
			if g, err = newGetter(a.pos[0], false, nil); err != nil {
				return nil, err
			}
			a.pos = a.pos[1:]
		}
		test := ""
		if len(a.pos) > 0 {
			var ok bool
			if test, ok = a.pos[0].(string); !ok {
				return nil, fmt.Errorf("%s: the name of a test must be str, not %s", name, typeName(a.pos[0]))
			}
			a.pos = a.pos[1:]
		}
		items, err := r.iterate(v)
		if err != nil {
			return nil, err
		}
		var kept []Value
		for _, item := range items {
			x, err := r.get(g, item)
			if err != nil {
				return nil, err
			}
			ok := truth(x)
			if test != "" {
				if ok, err = r.test(test, x, a); err != nil {
					return nil, err
				}
			}
			if ok == want {
				kept = append(kept, item)
			}
		}
		return newGenerator(kept), r.items(len(kept))
	}
}

func filterFirst(r *run, v Value, a args) (Value, error) {
	if _, err := a.bind("first", 0); err != nil {
		return nil, err
	}
	if l, ok := v.(*list); ok && l.kind == kindGenerator && len(l.items) > 0 {
		first := l.items[0]
		l.items = l.items[1:] // the rest can still be read
		return first, nil
	}
	items, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return &undefined{"No first item, sequence was empty."}, nil
	}
	return items[0], nil
}

func filterLast(r *run, v Value, a args) (Value, error) {
	if _, err := a.bind("last", 0); err != nil {
		return nil, err
	}
	if l, ok := v.(*list); ok && l.kind == kindGenerator {
		return nil, errors.New("'generator' object is not reversible")
	}
	items, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return &undefined{"No last item, sequence was empty."}, nil
	}
	return items[len(items)-1], nil
}

func filterList(r *run, v Value, a args) (Value, error) {
	if _, err := a.bind("list", 0); err != nil {
		return nil, err
	}
	items, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	return newList(items), r.items(0)
}

func filterItems(r *run, v Value, a args) (Value, error) {
	if _, err := a.bind("items", 0); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case *undefined:
		return newGenerator(nil), nil
	case *dict:
		return r.pairs(v, kindGenerator, "")
	}
	return nil, errors.New("can only get item pairs from a mapping")
}

func filterReverse(r *run, v Value, a args) (Value, error) {
	if _, err := a.bind("reverse", 0); err != nil {
		return nil, err
	}
	if s, ok := v.(string); ok {
		minusOne := int64(-1)
		return r.slice(s, nil, nil, &minusOne)
	}
	items, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	if err := r.items(len(items)); err != nil {
		return nil, err
	}
	items = slices.Clone(items)
	slices.Reverse(items)
	return newGenerator(items), nil
}

func filterJoin(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("join", 0, "d", "attribute")
	if err != nil {
		return nil, err
	}
	sep, err := r.str(b.value(0, ""))
	if err != nil {
		return nil, err
	}
	g, err := newGetter(b.value(1, nil), false, nil)
	if err != nil {
		return nil, err
	}
	items, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	if err := r.items(len(items)); err != nil {
		return nil, err
	}
	parts := make([]string, len(items))
	size := 0
	for i, item := range items {
		if item, err = r.get(g, item); err != nil {
			return nil, err
		}
		if parts[i], err = r.str(item); err != nil {
			return nil, err
		}
		size += len(parts[i])
	}
	return r.joinText(parts, sep, size)
}

func filterSum(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("sum", 0, "attribute", "start")
	if err != nil {
		return nil, err
	}
	g, err := newGetter(b.value(0, nil), false, nil)
	if err != nil {
		return nil, err
	}
	items, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	total := b.value(1, int64(0))
	if _, ok := total.(string); ok {
		return nil, errors.New("sum() can't sum strings")
	}
	for _, item := range items {
		if item, err = r.get(g, item); err != nil {
			return nil, err
		}
		if total, err = r.binary("+", total, item); err != nil {
			return nil, err
		}
	}
	return total, nil
}

// filterBatch and filterSlice return lists of lists.
func filterBatch(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("batch", 1, "linecount", "fill_with")
	if err != nil {
		return nil, err
	}
	size, err := b.int(0, 0)
	if err != nil {
		return nil, err
	}
	items, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	if err := r.items(4 * len(items)); err != nil {
		return nil, err
	}
	var rows []Value
	var row []Value
	for _, item := range items {
		if int64(len(row)) == size {
			rows = append(rows, newList(row))
			row = nil
		}
		row = append(row, item)
	}
	if len(row) > 0 {
		if fill := b.value(1, nil); fill != nil && int64(len(row)) < size {
			if size > int64(r.limits.Items) {
				return nil, r.items(r.limits.Items + 1)
			}
			if err := r.items(int(size)); err != nil {
				return nil, err
			}
			for int64(len(row)) < size {
				row = append(row, fill)
			}
		}
		rows = append(rows, newList(row))
	}
	return newGenerator(rows), nil
}

func filterSlice(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("slice", 1, "slices", "fill_with")
	if err != nil {
		return nil, err
	}
	n, err := b.int(0, 0)
	if err != nil {
		return nil, err
	}
	items, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, errors.New("integer division or modulo by zero")
	}
	if n > int64(r.limits.Items/8) {
		return nil, r.items(r.limits.Items + 1)
	}
	if err := r.items(len(items) + 8*int(max(n, 0))); err != nil {
		return nil, err
	}
	var rows []Value
	at := 0
	for i := range max(n, 0) {
		size := len(items) / int(n)
		extra := int(i) < len(items)%int(n)
		if extra {
			size++
		}
		row := slices.Clone(items[at : at+size])
		at += size
		if fill := b.value(1, nil); fill != nil && !extra {
			row = append(row, fill)
		}
		rows = append(rows, newList(row))
	}
	return newGenerator(rows), nil
}
