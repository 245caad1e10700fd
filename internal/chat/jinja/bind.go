package jinja

import (
	"fmt"
	"slices"
)

// absent marks a parameter that was not given.
type absent struct{}

// bound are the arguments of a filter, test, method or global in the order
// of its parameters.
type bound struct {
	name string
	vals []Value
}

// bind matches arguments to parameters; the first required ones must be given.
func (a args) bind(name string, required int, params ...string) (bound, error) {
	b := bound{name, make([]Value, len(params))}
	for i := range b.vals {
		b.vals[i] = absent{}
	}
	if len(a.pos) > len(params) {
		return b, fmt.Errorf("%s() takes at most %d arguments (%d given)", name, len(params), len(a.pos))
	}
	copy(b.vals, a.pos)
	for i, n := range a.names {
		at := slices.Index(params, n)
		if at < 0 {
			return b, fmt.Errorf("%s() got an unexpected keyword argument %q", name, n)
		}
		if _, free := b.vals[at].(absent); !free {
			return b, fmt.Errorf("%s() got multiple values for argument %q", name, n)
		}
		b.vals[at] = a.vals[i]
	}
	for i := range required {
		if !b.has(i) {
			return b, fmt.Errorf("%s() missing required argument %q", name, params[i])
		}
	}
	return b, nil
}

func (b bound) has(i int) bool {
	_, missing := b.vals[i].(absent)
	return !missing
}

func (b bound) wrong(i int, want string) error {
	if u, ok := b.vals[i].(*undefined); ok {
		return u.err()
	}
	return fmt.Errorf("%s() argument %d must be %s, not %s", b.name, i+1, want, typeName(b.vals[i]))
}

// value returns argument i, def if it was not given.
func (b bound) value(i int, def Value) Value {
	if !b.has(i) {
		return def
	}
	return b.vals[i]
}

func (b bound) str(i int, def string) (string, error) {
	if !b.has(i) {
		return def, nil
	}
	s, ok := b.vals[i].(string)
	if !ok {
		return "", b.wrong(i, "str")
	}
	return s, nil
}

// strOrNone is str where None counts as not given.
func (b bound) strOrNone(i int, def string) (string, bool, error) {
	if !b.has(i) || b.vals[i] == nil {
		return def, false, nil
	}
	s, err := b.str(i, def)
	return s, true, err
}

func (b bound) int(i int, def int64) (int64, error) {
	if !b.has(i) {
		return def, nil
	}
	n, ok := asInt(b.vals[i])
	if !ok {
		return 0, b.wrong(i, "int")
	}
	return n, nil
}

func (b bound) bool(i int, def bool) bool {
	if !b.has(i) {
		return def
	}
	return truth(b.vals[i])
}
