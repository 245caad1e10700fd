package jinja

import (
	"errors"
	"fmt"
)

// lineError adds the line to an error of evaluation, once.
type lineError struct {
	line int
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }
func (e *lineError) Unwrap() error { return e.err }

func atLine(line int, err error) error {
	var known *lineError
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &lineError{line, err}
}

// args are the evaluated arguments of a call.
type args struct {
	pos   []Value
	names []string
	vals  []Value
}

// eval computes an expression.
func (r *run) eval(e expr) (Value, error) {
	switch e := e.(type) {
	case *constExpr:
		return e.value, r.step(1)
	case *nameExpr:
		return r.lookup(e.name), r.step(1)
	case captureExpr:
		return r.captured, nil
	}
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.leave()
	switch e := e.(type) {
	case *attrExpr:
		v, err := r.eval(e.value)
		if err != nil {
			return nil, err
		}
		v, err = r.getAttr(v, e.name)
		return v, atLine(e.line, err)
	case *itemExpr:
		return r.evalItem(e)
	case *callExpr:
		fn, err := r.eval(e.fn)
		if err != nil {
			return nil, err
		}
		a, err := r.args(e.args)
		if err != nil {
			return nil, err
		}
		v, err := r.call(fn, a)
		return v, atLine(e.line, err)
	case *filterExpr:
		v, err := r.eval(e.value)
		if err != nil {
			return nil, err
		}
		a, err := r.args(e.args)
		if err != nil {
			return nil, err
		}
		v, err = r.filter(e.name, v, a)
		return v, atLine(e.line, err)
	case *testExpr:
		v, err := r.eval(e.value)
		if err != nil {
			return nil, err
		}
		a, err := r.args(e.args)
		if err != nil {
			return nil, err
		}
		ok, err := r.test(e.name, v, a)
		return ok, atLine(e.line, err)
	case *binaryExpr:
		left, err := r.eval(e.left)
		if err != nil {
			return nil, err
		}
		right, err := r.eval(e.right)
		if err != nil {
			return nil, err
		}
		v, err := r.binary(e.op, left, right)
		return v, atLine(e.line, err)
	case *compareExpr:
		return r.evalCompare(e)
	case *concatExpr:
		return r.evalConcat(e)
	}
	return r.evalOther(e)
}

func (r *run) evalOther(e expr) (Value, error) {
	switch e := e.(type) {
	case *logicExpr:
		v, err := r.eval(e.left)
		if err != nil || truth(v) != e.and {
			return v, err
		}
		return r.eval(e.right)
	case *notExpr:
		v, err := r.eval(e.value)
		return !truth(v), err
	case *condExpr:
		v, err := r.eval(e.cond)
		switch {
		case err != nil:
			return nil, err
		case truth(v):
			return r.eval(e.yes)
		case e.no != nil:
			return r.eval(e.no)
		}
		return &undefined{"the inline if-expression evaluated to false and no else section was defined"}, nil
	case *unaryExpr:
		v, err := r.eval(e.value)
		if err != nil {
			return nil, err
		}
		v, err = negate(v, e.minus)
		return v, atLine(e.line, err)
	case *tupleExpr:
		items, err := r.evalAll(e.items)
		return newTuple(items...), err
	case *listExpr:
		items, err := r.evalAll(e.items)
		return newList(items), err
	case *dictExpr:
		d := newDict()
		if err := r.items(6 * len(e.keys)); err != nil {
			return nil, err
		}
		for i, k := range e.keys {
			key, err := r.eval(k)
			if err != nil {
				return nil, err
			}
			hash, err := r.hash(key)
			if err != nil {
				return nil, err
			}
			val, err := r.eval(e.values[i])
			if err != nil {
				return nil, err
			}
			d.set(hash, key, val)
		}
		return d, nil
	}
	return nil, fmt.Errorf("unknown expression %T", e)
}

func (r *run) evalAll(list []expr) ([]Value, error) {
	if err := r.items(len(list)); err != nil {
		return nil, err
	}
	items := make([]Value, len(list))
	for i, e := range list {
		var err error
		if items[i], err = r.eval(e); err != nil {
			return nil, err
		}
	}
	return items, nil
}

func (r *run) evalItem(e *itemExpr) (Value, error) {
	v, err := r.eval(e.value)
	if err != nil {
		return nil, err
	}
	if s, ok := e.index.(*sliceExpr); ok {
		v, err = r.evalSlice(v, s)
		return v, atLine(e.line, err)
	}
	index, err := r.eval(e.index)
	if err != nil {
		return nil, err
	}
	v, err = r.getItem(v, index)
	return v, atLine(e.line, err)
}

func (r *run) evalSlice(v Value, s *sliceExpr) (Value, error) {
	var bounds [3]*int64
	for i, e := range []expr{s.start, s.stop, s.step} {
		if e == nil {
			continue
		}
		b, err := r.eval(e)
		if err != nil {
			return nil, err
		}
		if b == nil {
			continue
		}
		n, ok := asInt(b)
		if !ok {
			if u, is := b.(*undefined); is {
				return nil, u.err()
			}
			return &undefined{"slice indices must be integers or None"}, nil
		}
		bounds[i] = &n
	}
	return r.slice(v, bounds[0], bounds[1], bounds[2])
}

func (r *run) evalCompare(e *compareExpr) (Value, error) {
	left, err := r.eval(e.first)
	if err != nil {
		return nil, err
	}
	for i, op := range e.ops {
		right, err := r.eval(e.rest[i])
		if err != nil {
			return nil, err
		}
		ok, err := r.compare(op, left, right)
		if err != nil {
			return nil, atLine(e.line, err)
		}
		if !ok {
			return false, nil
		}
		left = right
	}
	return true, nil
}

func (r *run) evalConcat(e *concatExpr) (Value, error) {
	parts := make([]string, len(e.items))
	size := 0
	for i, item := range e.items {
		v, err := r.eval(item)
		if err != nil {
			return nil, err
		}
		if parts[i], err = r.str(v); err != nil {
			return nil, err
		}
		size += len(parts[i])
	}
	return r.joinText(parts, "", size)
}

func (r *run) args(a callArgs) (args, error) {
	var out args
	var err error
	if len(a.pos) > 0 {
		if out.pos, err = r.evalAll(a.pos); err != nil {
			return out, err
		}
	}
	if len(a.named) > 0 {
		out.names = append(out.names, a.names...)
		if out.vals, err = r.evalAll(a.named); err != nil {
			return out, err
		}
	}
	if a.dynPos != nil {
		v, err := r.eval(a.dynPos)
		if err != nil {
			return out, err
		}
		more, err := r.iterate(v)
		if err != nil {
			return out, err
		}
		if err := r.items(len(more)); err != nil {
			return out, err
		}
		out.pos = append(out.pos, more...)
	}
	if a.dynNamed != nil {
		v, err := r.eval(a.dynNamed)
		if err != nil {
			return out, err
		}
		d, ok := v.(*dict)
		if !ok {
			return out, fmt.Errorf("argument after ** must be a mapping, not %s", typeName(v))
		}
		if err := r.items(2 * len(d.keys)); err != nil {
			return out, err
		}
		for i, k := range d.keys {
			name, ok := k.(string)
			if !ok {
				return out, errors.New("keywords must be strings")
			}
			out.names, out.vals = append(out.names, name), append(out.vals, d.vals[i])
		}
	}
	for i, name := range out.names {
		if i > 64 {
			return out, limitf("more than 64 keyword arguments")
		}
		if indexOf(out.names[:i], name) >= 0 {
			return out, fmt.Errorf("got multiple values for keyword argument %q", name)
		}
	}
	return out, nil
}

// call calls a value.
func (r *run) call(fn Value, a args) (Value, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.leave()
	switch fn := fn.(type) {
	case *function:
		return fn.call(r, a)
	case *macro:
		return r.callMacro(fn, a)
	case *loopObject:
		return fn.recurse(r, a)
	case *undefined:
		return nil, fn.err()
	}
	return nil, fmt.Errorf("%q object is not callable", typeName(fn))
}

func (u *undefined) err() error { return errors.New(u.message) }
