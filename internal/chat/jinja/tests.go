package jinja

import (
	"errors"
	"fmt"
)

// testFunc computes "v is name(arg)". arg is absent unless numArgs is 1.
type testFunc struct {
	numArgs int
	call    func(r *run, v, arg Value) (bool, error)
}

var tests map[string]testFunc

func init() {
	kind := func(f func(v Value) bool) testFunc {
		return testFunc{0, func(_ *run, v, _ Value) (bool, error) { return f(v), nil }}
	}
	comparison := func(op string) testFunc {
		return testFunc{1, func(r *run, v, arg Value) (bool, error) { return r.compare(op, v, arg) }}
	}
	is := func(want string) func(v Value) bool {
		return func(v Value) bool { return typeName(v) == want }
	}
	isUndefined := func(v Value) bool { _, ok := v.(*undefined); return ok }
	tests = map[string]testFunc{
		"defined":   kind(func(v Value) bool { return !isUndefined(v) }),
		"undefined": kind(isUndefined),
		"none":      kind(func(v Value) bool { return v == nil }),
		"boolean":   kind(is("bool")),
		"true":      kind(func(v Value) bool { return v == true }),
		"false":     kind(func(v Value) bool { return v == false }),
		"integer":   kind(is("int")),
		"float":     kind(is("float")),
		"number":    kind(func(v Value) bool { return is("int")(v) || is("float")(v) || is("bool")(v) }),
		"string":    kind(is("str")),
		"mapping":   kind(is("dict")),
		"callable": kind(func(v Value) bool {
			switch v := v.(type) {
			case *function, *macro:
				return true
			case *loopObject:
				return true
			case *undefined:
				return v != nil // Undefined has a __call__
			}
			return false
		}),
		"sequence": kind(func(v Value) bool {
			switch v := v.(type) {
			case string, *dict, *undefined:
				return true
			case *list:
				return v.sequence()
			}
			return false
		}),
		"iterable": kind(func(v Value) bool {
			switch v.(type) {
			case string, *dict, *list, *undefined, *loopObject:
				return true
			}
			return false
		}),
		"escaped": kind(func(Value) bool { return false }),
		"lower":   textTest(isLower),
		"upper":   textTest(isUpper),
		"odd":     remainderTest(1),
		"even":    remainderTest(0),
		"divisibleby": {1, func(r *run, v, arg Value) (bool, error) {
			m, err := r.binary("%", v, arg)
			if err != nil {
				return false, err
			}
			return r.equal(m, int64(0))
		}},
		"in":     comparison("in"),
		"sameas": {1, sameAs},
		"filter": {0, func(_ *run, v, _ Value) (bool, error) {
			s, ok := v.(string)
			return ok && filters[s] != nil, nil
		}},
		"test": {0, func(_ *run, v, _ Value) (bool, error) {
			s, ok := v.(string)
			return ok && tests[s].call != nil, nil
		}},
	}
	for op, names := range map[string][]string{
		"==": {"eq", "equalto", "=="}, "!=": {"ne", "!="},
		"<": {"lt", "lessthan", "<"}, "<=": {"le", "<="},
		">": {"gt", "greaterthan", ">"}, ">=": {"ge", ">="},
	} {
		for _, name := range names {
			tests[name] = comparison(op)
		}
	}
}

func textTest(f func(string) bool) testFunc {
	return testFunc{0, func(r *run, v, _ Value) (bool, error) {
		s, err := r.str(v)
		if err != nil {
			return false, err
		}
		return f(s), r.work(len(s))
	}}
}

func remainderTest(want int64) testFunc {
	return testFunc{0, func(r *run, v, _ Value) (bool, error) {
		m, err := r.binary("%", v, int64(2))
		if err != nil {
			return false, err
		}
		return r.equal(m, want)
	}}
}

// sameAs is Python's "is". Immutable values count as the same if type and
// value are, which holds in CPython for constants and small numbers.
func sameAs(r *run, v, arg Value) (bool, error) {
	switch v.(type) {
	case *list, *dict, *undefined, *namespace, *function, *macro, *loopObject:
		return v == arg, nil
	}
	if typeName(v) != typeName(arg) {
		return false, nil
	}
	return r.equal(v, arg)
}

// test applies a test by its name.
func (r *run) test(name string, v Value, a args) (bool, error) {
	t, ok := tests[name]
	if !ok {
		return false, fmt.Errorf("no test named %q", name)
	}
	if err := r.step(1); err != nil {
		return false, err
	}
	if len(a.names) > 1 || len(a.pos)+len(a.names) != t.numArgs {
		if t.numArgs == 0 {
			return false, fmt.Errorf("the test %q takes no argument", name)
		}
		return false, fmt.Errorf("the test %q takes one argument", name)
	}
	if t.numArgs == 0 {
		return t.call(r, v, nil)
	}
	if len(a.pos) == 0 {
		return false, errors.New("a test takes its argument by position")
	}
	return t.call(r, v, a.pos[0])
}
