package jinja

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

var errOverflow = errors.New("integer overflow: only 64-bit integers are supported")

func operandError(op string, a, b Value) error {
	for _, v := range []Value{a, b} {
		if u, ok := v.(*undefined); ok {
			return u.err()
		}
	}
	return fmt.Errorf("unsupported operand types for %s: %q and %q", op, typeName(a), typeName(b))
}

func negate(v Value, minus bool) (Value, error) {
	if f, ok := v.(float64); ok {
		if minus {
			f = -f
		}
		return f, nil
	}
	i, ok := asInt(v)
	if !ok {
		if u, is := v.(*undefined); is {
			return nil, u.err()
		}
		return nil, fmt.Errorf("bad operand type for unary operator: %q", typeName(v))
	}
	if !minus {
		return i, nil
	}
	if i == math.MinInt64 {
		return nil, errOverflow
	}
	return -i, nil
}

// binary computes a op b as Python does, with 64-bit integers.
func (r *run) binary(op string, a, b Value) (Value, error) {
	x, xInt := asInt(a)
	y, yInt := asInt(b)
	if xInt && yInt {
		return intOp(op, x, y)
	}
	f, fOK := asFloat(a)
	g, gOK := asFloat(b)
	if fOK && gOK {
		return floatOp(op, f, g)
	}
	switch op {
	case "+":
		return r.add(a, b)
	case "*":
		if xInt {
			a, y, yInt = b, x, true
		}
		if !yInt {
			break
		}
		switch s := a.(type) {
		case string:
			return r.repeat(s, y)
		case *list:
			if s.is(kindList, kindTuple) {
				return r.repeatList(s, y)
			}
		}
	case "%":
		if s, ok := a.(string); ok {
			return r.percent(s, b)
		}
	}
	return nil, operandError(op, a, b)
}

func (r *run) add(a, b Value) (Value, error) {
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			if err := r.text(len(x) + len(y)); err != nil {
				return nil, err
			}
			return x + y, nil
		}
	case *list:
		if y, ok := b.(*list); ok && x.kind == y.kind && x.is(kindList, kindTuple) {
			if err := r.items(len(x.items) + len(y.items)); err != nil {
				return nil, err
			}
			items := make([]Value, 0, len(x.items)+len(y.items))
			return &list{kind: x.kind, items: append(append(items, x.items...), y.items...)}, nil
		}
	}
	return nil, operandError("+", a, b)
}

func (r *run) repeatList(l *list, n int64) (Value, error) {
	if n <= 0 || len(l.items) == 0 {
		return &list{kind: l.kind}, nil
	}
	if n > int64(r.limits.Items) {
		return nil, r.items(r.limits.Items + 1)
	}
	if err := r.items(len(l.items) * int(n)); err != nil {
		return nil, err
	}
	items := make([]Value, 0, len(l.items)*int(n))
	for range n {
		items = append(items, l.items...)
	}
	return &list{kind: l.kind, items: items}, nil
}

func intOp(op string, x, y int64) (Value, error) {
	switch op {
	case "+":
		if s := x + y; (s > x) == (y > 0) {
			return s, nil
		}
		return nil, errOverflow
	case "-":
		if s := x - y; (s < x) == (y > 0) {
			return s, nil
		}
		return nil, errOverflow
	case "*":
		return mulInt(x, y)
	case "/":
		if y == 0 {
			return nil, errors.New("division by zero")
		}
		return float64(x) / float64(y), nil
	case "//", "%":
		switch {
		case y == 0:
			return nil, errors.New("integer division or modulo by zero")
		case y == -1 && op == "%":
			return int64(0), nil
		case y == -1 && x == math.MinInt64:
			return nil, errOverflow
		}
		q, m := x/y, x%y
		if m != 0 && (m < 0) != (y < 0) {
			q, m = q-1, m+y
		}
		if op == "%" {
			return m, nil
		}
		return q, nil
	}
	// **
	if y < 0 {
		if x == 0 {
			return nil, errors.New("0.0 cannot be raised to a negative power")
		}
		return math.Pow(float64(x), float64(y)), nil
	}
	result := int64(1)
	for y > 0 {
		if y&1 != 0 {
			p, err := mulInt(result, x)
			if err != nil {
				return nil, err
			}
			result = p.(int64)
		}
		if y >>= 1; y > 0 {
			p, err := mulInt(x, x)
			if err != nil {
				return nil, err
			}
			x = p.(int64)
		}
	}
	return result, nil
}

func mulInt(x, y int64) (Value, error) {
	if x == 0 || y == 0 {
		return int64(0), nil
	}
	p := x * y
	if p/y != x || x == -1 && y == math.MinInt64 || y == -1 && x == math.MinInt64 {
		return nil, errOverflow
	}
	return p, nil
}

func floatOp(op string, x, y float64) (Value, error) {
	switch op {
	case "+":
		return x + y, nil
	case "-":
		return x - y, nil
	case "*":
		return x * y, nil
	case "**":
		if x == 0 && y < 0 {
			return nil, errors.New("0.0 cannot be raised to a negative power")
		}
		if x < 0 && y != math.Trunc(y) {
			return nil, errors.New("complex numbers are not supported")
		}
		return math.Pow(x, y), nil
	}
	if y == 0 {
		return nil, errors.New("float division by zero")
	}
	switch op {
	case "/":
		return x / y, nil
	case "//":
		return math.Floor(x / y), nil
	}
	m := math.Mod(x, y)
	if m != 0 && (m < 0) != (y < 0) {
		m += y
	}
	return m, nil
}

// compare computes a op b for the comparison operators.
func (r *run) compare(op string, a, b Value) (bool, error) {
	switch op {
	case "==", "!=":
		eq, err := r.equal(a, b)
		return eq == (op == "=="), err
	case "in", "not in":
		in, err := r.contains(b, a)
		return in == (op == "in"), err
	}
	c, err := r.order(op, a, b)
	if err != nil {
		return false, err
	}
	switch op {
	case "<":
		return c == -1, nil
	case "<=":
		return c == -1 || c == 0, nil
	case ">":
		return c == 1, nil
	}
	return c == 1 || c == 0, nil
}

// unordered is what order returns for NaN.
const unordered = 2

// order compares numbers, strings, and lists and tuples of them.
func (r *run) order(op string, a, b Value) (int, error) {
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return strings.Compare(x, y), r.work(min(len(x), len(y)))
		}
	}
	if x, ok := asInt(a); ok {
		if y, ok := asInt(b); ok {
			return cmpOf(x < y, x > y), nil
		}
	}
	if x, ok := asFloat(a); ok {
		if y, ok := asFloat(b); ok {
			if x != x || y != y {
				return unordered, nil
			}
			return cmpOf(x < y, x > y), nil
		}
	}
	x, xOK := a.(*list)
	y, yOK := b.(*list)
	if !xOK || !yOK || x.kind != y.kind || !x.is(kindList, kindTuple) {
		for _, v := range []Value{a, b} {
			if u, ok := v.(*undefined); ok {
				return 0, u.err()
			}
		}
		return 0, fmt.Errorf("%q not supported between %q and %q", op, typeName(a), typeName(b))
	}
	if err := r.enter(); err != nil {
		return 0, err
	}
	defer r.leave()
	for i := range min(len(x.items), len(y.items)) {
		eq, err := r.equal(x.items[i], y.items[i])
		if err != nil {
			return 0, err
		}
		if !eq {
			return r.order(op, x.items[i], y.items[i])
		}
	}
	return cmpOf(len(x.items) < len(y.items), len(x.items) > len(y.items)), nil
}

func cmpOf(less, more bool) int {
	switch {
	case less:
		return -1
	case more:
		return 1
	}
	return 0
}

// equal is Python's a == b.
func (r *run) equal(a, b Value) (bool, error) {
	if x, ok := asInt(a); ok {
		if y, ok := asInt(b); ok {
			return x == y, nil
		}
	}
	if x, ok := asFloat(a); ok {
		y, ok := asFloat(b)
		return ok && x == y, nil
	}
	switch x := a.(type) {
	case nil:
		return b == nil, nil
	case string:
		y, ok := b.(string)
		if !ok || len(x) != len(y) {
			return false, nil
		}
		return x == y, r.work(len(x))
	case bigInt:
		y, ok := b.(bigInt)
		return ok && x == y, nil
	case *undefined:
		_, ok := b.(*undefined)
		return ok, nil
	case *list:
		y, ok := b.(*list)
		if !ok || x.kind != y.kind || len(x.items) != len(y.items) || x.kind == kindGenerator {
			return ok && x == y, nil
		}
		if err := r.enter(); err != nil {
			return false, err
		}
		defer r.leave()
		for i := range x.items {
			if eq, err := r.equal(x.items[i], y.items[i]); err != nil || !eq {
				return false, err
			}
		}
		return true, r.step(int64(len(x.items)))
	case *dict:
		y, ok := b.(*dict)
		if !ok || len(x.keys) != len(y.keys) {
			return false, nil
		}
		if err := r.enter(); err != nil {
			return false, err
		}
		defer r.leave()
		for i, k := range x.keys {
			h, err := r.hash(k)
			if err != nil {
				return false, err
			}
			other, ok := y.get(h)
			if !ok {
				return false, nil
			}
			if eq, err := r.equal(x.vals[i], other); err != nil || !eq {
				return false, err
			}
		}
		return true, nil
	case *namespace, *function, *macro, *loopObject:
		return a == b, nil
	}
	return false, nil
}

// contains is Python's item in container.
func (r *run) contains(container, item Value) (bool, error) {
	switch c := container.(type) {
	case string:
		s, ok := item.(string)
		if !ok {
			if u, is := item.(*undefined); is {
				return false, u.err()
			}
			return false, fmt.Errorf("'in <string>' requires string as left operand, not %s", typeName(item))
		}
		return strings.Contains(c, s), r.work(len(c) + len(s))
	case *dict:
		h, err := r.hash(item)
		if err != nil {
			return false, err
		}
		_, ok := c.get(h)
		return ok, nil
	case *list:
		for _, v := range c.items {
			if err := r.step(1); err != nil {
				return false, err
			}
			if eq, err := r.equal(item, v); err != nil || eq {
				return eq, err
			}
		}
		return false, nil
	case *undefined:
		return false, nil
	}
	return false, fmt.Errorf("argument of type %q is not iterable", typeName(container))
}
