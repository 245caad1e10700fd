package jinja

import (
	"fmt"
	"unicode/utf8"
)

// noAttr is what an attribute or item that does not exist evaluates to.
func noAttr(v Value, name string) *undefined {
	return &undefined{fmt.Sprintf("'%s object' has no attribute %q", typeName(v), name)}
}

// unsafeAttrs are the methods that the immutable sandbox hides.
var unsafeAttrs = map[string]map[string]bool{
	"list": {"pop": true, "append": true, "sort": true, "extend": true, "clear": true, "reverse": true, "insert": true, "remove": true},
	"dict": {"pop": true, "popitem": true, "setdefault": true, "update": true, "clear": true},
}

// attribute returns what getattr(v, name) finds: methods and members.
func (r *run) attribute(v Value, name string) (Value, bool) {
	typ := typeName(v)
	if unsafeAttrs[typ][name] || len(name) > 2 && name[:2] == "__" {
		return &undefined{fmt.Sprintf("access to attribute %q of %q object is unsafe.", name, typ)}, true
	}
	switch v := v.(type) {
	case string:
		if m, ok := stringMethods[name]; ok {
			return &function{name: name, call: func(r *run, a args) (Value, error) {
				if err := r.work(len(v)); err != nil {
					return nil, err
				}
				return m(r, v, a)
			}}, true
		}
	case *list:
		if at := indexOf(v.names, name); at >= 0 {
			return v.items[at], true
		}
		if m, ok := listMethods[name]; ok && v.sequence() {
			return &function{name: name, call: func(r *run, a args) (Value, error) { return m(r, v, a) }}, true
		}
	case *dict:
		if m, ok := dictMethods[name]; ok {
			return &function{name: name, call: func(r *run, a args) (Value, error) { return m(r, v, a) }}, true
		}
	case *namespace:
		x, ok := v.vars[name]
		return x, ok
	case *loopObject:
		return v.attribute(name)
	case *function:
		if v.attr != nil {
			return v.attr(name)
		}
	case *macro:
		if name == "name" {
			return v.def.name, true
		}
	}
	return nil, false
}

// getAttr is v.name: an attribute, or else the item of that name.
func (r *run) getAttr(v Value, name string) (Value, error) {
	if u, ok := v.(*undefined); ok {
		return nil, u.err()
	}
	if x, ok := r.attribute(v, name); ok {
		return x, r.alloc(64)
	}
	if d, ok := v.(*dict); ok {
		if x, ok := d.getString(name); ok {
			return x, nil
		}
	}
	return noAttr(v, name), r.alloc(64)
}

// getItem is v[index]: an item, or else the attribute of that name.
func (r *run) getItem(v, index Value) (Value, error) {
	switch v := v.(type) {
	case *undefined:
		return nil, v.err()
	case *dict:
		h, err := r.hash(index)
		if err != nil {
			break // unhashable keys are never there
		}
		if x, ok := v.get(h); ok {
			return x, nil
		}
	case *list:
		if i, ok := asInt(index); ok && v.sequence() {
			if i < 0 {
				i += int64(len(v.items))
			}
			if i >= 0 && i < int64(len(v.items)) {
				return v.items[i], nil
			}
		}
	case string:
		if i, ok := asInt(index); ok {
			n, err := r.runeCount(v)
			if err != nil {
				return nil, err
			}
			if i < 0 {
				i += int64(n)
			}
			if i >= 0 && i < int64(n) {
				start := runeOffset(v, int(i))
				_, size := utf8.DecodeRuneInString(v[start:])
				return v[start : start+size], nil
			}
		}
	}
	if name, ok := index.(string); ok {
		if x, ok := r.attribute(v, name); ok {
			return x, r.alloc(64)
		}
		return noAttr(v, name), r.alloc(64 + len(name))
	}
	if err := r.alloc(64); err != nil {
		return nil, err
	}
	s, err := r.repr(index)
	if err != nil {
		return nil, err
	}
	return &undefined{fmt.Sprintf("'%s object' has no element %s", typeName(v), s[:min(len(s), 80)])}, nil
}

// runeOffset returns the byte offset of character i; i may be the count.
func runeOffset(s string, i int) int {
	at := 0
	for ; i > 0 && at < len(s); i-- {
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	return at
}

// slice is v[start:stop:step] with Python's rules; nil bounds are absent.
func (r *run) slice(v Value, start, stop, step *int64) (Value, error) {
	var n int
	switch v := v.(type) {
	case string:
		var err error
		if n, err = r.runeCount(v); err != nil {
			return nil, err
		}
	case *list:
		if !v.sequence() {
			return &undefined{fmt.Sprintf("'%s object' has no element", typeName(v))}, nil
		}
		n = len(v.items)
	case *undefined:
		return nil, v.err()
	default:
		return &undefined{fmt.Sprintf("'%s object' has no element", typeName(v))}, nil
	}
	by := int64(1)
	if step != nil {
		by = *step
	}
	if by == 0 {
		return nil, fmt.Errorf("slice step cannot be zero")
	}
	from, to := sliceBounds(start, stop, by, int64(n))
	if s, ok := v.(string); ok && by == 1 {
		if from >= to {
			return "", nil
		}
		return s[runeOffset(s, int(from)):runeOffset(s, int(to))], nil
	}
	// The indices, and for a string its characters and the result's.
	if err := r.alloc(16*n + 48); err != nil {
		return nil, err
	}
	picked := make([]int64, 0, n)
	for i := from; by > 0 && i < to || by < 0 && i > to; {
		picked = append(picked, i)
		next := i + by
		if (by > 0) != (next > i) {
			break // overflow: past the end
		}
		i = next
	}
	if l, ok := v.(*list); ok {
		if err := r.items(len(picked)); err != nil {
			return nil, err
		}
		out := &list{kind: l.kind, items: make([]Value, len(picked))}
		if out.kind == kindRange {
			out.kind = kindList // its text would be another range
		}
		for j, i := range picked {
			out.items[j] = l.items[i]
		}
		return out, nil
	}
	s := v.(string)
	runes := []rune(s)
	out := make([]rune, len(picked))
	for j, i := range picked {
		out[j] = runes[i]
	}
	return string(out), nil
}

// sliceBounds is PySlice_AdjustIndices: with by < 0 the end may be -1.
func sliceBounds(start, stop *int64, by, n int64) (from, to int64) {
	low, high := int64(0), n
	if by < 0 {
		low, high = -1, n-1
	}
	clampTo := func(p *int64, absent int64) int64 {
		if p == nil {
			return absent
		}
		i := *p
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	if by > 0 {
		return clampTo(start, 0), clampTo(stop, n)
	}
	return clampTo(start, n-1), clampTo(stop, -1)
}
