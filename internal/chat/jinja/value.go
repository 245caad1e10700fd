package jinja

import (
	"fmt"
	"math"
	"strconv"
)

// Value is a value of the template language. Its dynamic type is one of
//
//	nil (None), bool, int64, bigInt, float64, string,
//	*list, *dict, *undefined, *namespace, *loopObject, *function, *macro
//
// Lists and dicts never change after they are built, as in Jinja's immutable
// sandbox; only namespaces do.
type Value any

// bigInt is an integer of the data that int64 does not hold, in decimal. It
// is printed and compared but not computed with.
type bigInt string

type listKind uint8

const (
	kindList listKind = iota
	kindTuple
	kindRange
	kindView      // of a dict: keys(), values(), items()
	kindGenerator // what map, select and others return: read once
)

type list struct {
	kind  listKind
	items []Value
	name  string   // of a range, view or generator, as Python prints it
	names []string // of the items of a named tuple (groupby)
}

func newList(items []Value) *list      { return &list{items: items} }
func newTuple(items ...Value) *list    { return &list{kind: kindTuple, items: items} }
func newGenerator(items []Value) *list { return &list{kind: kindGenerator, items: items} }
func (l *list) sequence() bool         { return l.kind <= kindRange }
func (l *list) is(kinds ...listKind) bool {
	for _, k := range kinds {
		if l.kind == k {
			return true
		}
	}
	return false
}

// dict is an insertion-ordered map. Keys are any hashable values.
type dict struct {
	keys  []Value
	vals  []Value
	index map[hashKey]int
}

// hashKey stands for a hashable value: equal values have equal keys.
type hashKey struct {
	kind byte // n none, i integer or bool, f float, s string, t tuple, p pointer
	i    int64
	f    float64
	s    string
	p    any
}

func newDict() *dict { return &dict{index: map[hashKey]int{}} }

func (d *dict) get(key hashKey) (Value, bool) {
	i, ok := d.index[key]
	if !ok {
		return nil, false
	}
	return d.vals[i], true
}

func (d *dict) getString(key string) (Value, bool) { return d.get(hashKey{kind: 's', s: key}) }

// set may only be called while the dict is being built.
func (d *dict) set(hash hashKey, key, val Value) {
	if i, ok := d.index[hash]; ok {
		d.vals[i] = val
		return
	}
	d.index[hash] = len(d.keys)
	d.keys, d.vals = append(d.keys, key), append(d.vals, val)
}

func (d *dict) setString(key string, val Value) { d.set(hashKey{kind: 's', s: key}, key, val) }

// undefined is what a name or attribute that does not exist evaluates to.
type undefined struct{ message string }

// namespace is what namespace() returns: the one thing that set can change.
type namespace struct {
	names []string // in the order of their first assignment
	vars  map[string]Value
}

func (n *namespace) set(name string, v Value) {
	if _, ok := n.vars[name]; !ok {
		n.names = append(n.names, name)
	}
	n.vars[name] = v
}

// function is a callable of the engine: a global or a bound method.
type function struct {
	name string
	call func(r *run, a args) (Value, error)
	attr func(name string) (Value, bool) // nil: no attributes
}

// macro is a macro with the scope that it was defined in.
type macro struct {
	def   *macroDef
	scope *scope
}

// typeName is the name that Python gives the type of v.
func typeName(v Value) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, bigInt:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case *list:
		return [...]string{"list", "tuple", "range", "dict view", "generator"}[v.kind]
	case *dict:
		return "dict"
	case *undefined:
		return "Undefined"
	case *namespace:
		return "Namespace"
	case *loopObject:
		return "LoopContext"
	case *macro:
		return "Macro"
	}
	return "function"
}

// truth is Python's bool(v).
func truth(v Value) bool {
	switch v := v.(type) {
	case nil, *undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case *list:
		return v.kind == kindGenerator || len(v.items) > 0
	case *dict:
		return len(v.keys) > 0
	}
	return true
}

// asInt returns v if it is an integer; bool counts as one, as in Python.
func asInt(v Value) (int64, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case int64:
		return v, true
	}
	return 0, false
}

// asFloat returns v as a float if it is a number.
func asFloat(v Value) (float64, bool) {
	if f, ok := v.(float64); ok {
		return f, true
	}
	i, ok := asInt(v)
	return float64(i), ok
}

// hash returns the key of a hashable value.
func (r *run) hash(v Value) (hashKey, error) {
	if err := r.step(1); err != nil {
		return hashKey{}, err
	}
	switch v := v.(type) {
	case nil:
		return hashKey{kind: 'n'}, nil
	case bool, int64:
		i, _ := asInt(v)
		return hashKey{kind: 'i', i: i}, nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<62 {
			return hashKey{kind: 'i', i: int64(v)}, nil
		}
		return hashKey{kind: 'f', f: v}, nil
	case bigInt:
		return hashKey{kind: 'f', s: string(v)}, nil
	case string:
		return hashKey{kind: 's', s: v}, r.work(len(v))
	case *list:
		if v.kind != kindTuple {
			break
		}
		if err := r.enter(); err != nil {
			return hashKey{}, err
		}
		defer r.leave()
		var key []byte
		for _, item := range v.items {
			k, err := r.hash(item)
			if err != nil {
				return k, err
			}
			if k.kind == 'p' {
				return k, fmt.Errorf("a tuple with a %s cannot be a key", typeName(item))
			}
			// Twice, as append doubles what it grows.
			if err := r.alloc(2 * (len(k.s) + 64)); err != nil {
				return k, err
			}
			// The length before the text keeps ("a", "b") from ("ab", "").
			key = append(key, k.kind)
			key = strconv.AppendInt(key, k.i, 36)
			key = strconv.AppendFloat(append(key, ','), k.f, 'g', -1, 64)
			key = strconv.AppendInt(append(key, ','), int64(len(k.s)), 36)
			key = append(append(key, ':'), k.s...)
		}
		if err := r.text(len(key)); err != nil {
			return hashKey{}, err
		}
		return hashKey{kind: 't', s: string(key)}, nil
	case *function, *macro, *namespace, *undefined:
		return hashKey{kind: 'p', p: v}, nil
	}
	return hashKey{}, fmt.Errorf("unhashable type: %q", typeName(v))
}
