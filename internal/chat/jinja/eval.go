package jinja

import (
	"fmt"
	"strings"
)

// control says how a body ended.
type control uint8

const (
	ctlNone control = iota
	ctlBreak
	ctlContinue
)

// write appends to the output or to what is being captured.
func (r *run) write(s string) error {
	if len(s) > r.limits.Output-r.out.Len() {
		return limitf("the output is larger than %d bytes", r.limits.Output)
	}
	if err := r.alloc(len(s)); err != nil {
		return err
	}
	r.out.WriteString(s)
	return nil
}

// exec runs statements in the current scope.
func (r *run) exec(body []node) (control, error) {
	if err := r.enter(); err != nil {
		return 0, err
	}
	defer r.leave()
	for _, n := range body {
		ctl, err := r.execOne(n)
		if err != nil || ctl != ctlNone {
			return ctl, err
		}
	}
	return ctlNone, nil
}

func (r *run) execOne(n node) (control, error) {
	if err := r.step(1); err != nil {
		return 0, err
	}
	switch n := n.(type) {
	case *dataNode:
		return 0, r.write(n.text)
	case *outputNode:
		v, err := r.eval(n.value)
		if err != nil {
			return 0, err
		}
		s, err := r.str(v)
		if err != nil {
			return 0, err
		}
		return 0, r.write(s)
	case *ifNode:
		for _, b := range n.branches {
			v, err := r.eval(b.cond)
			if err != nil {
				return 0, err
			}
			if truth(v) {
				return r.exec(b.body)
			}
		}
		return r.exec(n.elseBody)
	case *forNode:
		v, err := r.eval(n.iter)
		if err != nil {
			return 0, err
		}
		return 0, r.loop(n, v, 0)
	case *setNode:
		v, err := r.eval(n.value)
		if err != nil {
			return 0, err
		}
		return 0, r.assign(n.target, v)
	case *macroNode:
		r.scope.set(n.name, &macro{n.macro, r.scope})
		return 0, r.alloc(64)
	case *scopeNode:
		var ctl control
		err := r.inScope(r.scope, func() (err error) {
			ctl, err = r.exec(n.body)
			return err
		})
		return ctl, err
	case breakNode:
		return ctlBreak, nil
	case continueNode:
		return ctlContinue, nil
	}
	return r.execCapture(n)
}

// execCapture runs the statements that take the text of a body.
func (r *run) execCapture(n node) (control, error) {
	switch n := n.(type) {
	case *setBlockNode:
		v, ctl, err := r.captureFiltered(n.body, n.filters)
		if err != nil || ctl != ctlNone {
			return ctl, err
		}
		return 0, r.assign(n.target, v)
	case *filterNode:
		v, ctl, err := r.captureFiltered(n.body, n.filters)
		if err != nil || ctl != ctlNone {
			return ctl, err
		}
		s, err := r.str(v)
		if err != nil {
			return 0, err
		}
		return 0, r.write(s)
	case *callNode:
		fn, err := r.eval(n.call.fn)
		if err != nil {
			return 0, err
		}
		a, err := r.args(n.call.args)
		if err != nil {
			return 0, err
		}
		a.names, a.vals = append(a.names, "caller"), append(a.vals, &macro{n.macro, r.scope})
		v, err := r.call(fn, a)
		if err != nil {
			return 0, atLine(n.call.line, err)
		}
		s, err := r.str(v)
		if err != nil {
			return 0, err
		}
		return 0, r.write(s)
	case *withNode:
		// All values are computed outside of the new scope.
		values := make([]Value, len(n.values))
		for i, e := range n.values {
			var err error
			if values[i], err = r.eval(e); err != nil {
				return 0, err
			}
		}
		var ctl control
		err := r.inScope(r.scope, func() (err error) {
			for i, target := range n.targets {
				if err := r.assign(target, values[i]); err != nil {
					return err
				}
			}
			ctl, err = r.exec(n.body)
			return err
		})
		return ctl, err
	}
	return 0, fmt.Errorf("unknown statement %T", n)
}

// inScope runs f in a new scope below parent.
func (r *run) inScope(parent *scope, f func() error) error {
	if err := r.alloc(32); err != nil {
		return err
	}
	old := r.scope
	r.scope = &scope{parent: parent}
	err := f()
	r.scope = old
	return err
}

// capture returns the text that f writes.
func (r *run) capture(f func() error) (string, error) {
	old := r.out
	r.out = &strings.Builder{}
	err := f()
	s := r.out.String()
	r.out = old
	return s, err
}

func (r *run) captureFiltered(body []node, filters expr) (v Value, ctl control, err error) {
	s, err := r.capture(func() error {
		return r.inScope(r.scope, func() (err error) {
			ctl, err = r.exec(body)
			return err
		})
	})
	if err != nil || filters == nil {
		return s, ctl, err
	}
	old := r.captured
	r.captured = s
	v, err = r.eval(filters)
	r.captured = old
	return v, ctl, err
}

// assign sets the variables of a target.
func (r *run) assign(target expr, v Value) error {
	if err := r.step(1); err != nil {
		return err
	}
	switch t := target.(type) {
	case *nameExpr:
		r.scope.set(t.name, v)
		return r.alloc(48)
	case *nsRefExpr:
		ns, ok := r.lookup(t.name).(*namespace)
		if !ok {
			return fmt.Errorf("cannot assign attribute %q on non-namespace object %q", t.attr, t.name)
		}
		ns.set(t.attr, v)
		return r.alloc(64)
	case *tupleExpr:
		items, err := r.iterate(v)
		if err != nil {
			return err
		}
		switch {
		case len(items) > len(t.items):
			return fmt.Errorf("too many values to unpack (expected %d)", len(t.items))
		case len(items) < len(t.items):
			return fmt.Errorf("not enough values to unpack (expected %d, got %d)", len(t.items), len(items))
		}
		for i, sub := range t.items {
			if err := r.assign(sub, items[i]); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("cannot assign to %T", target)
}

// lookup returns the value of a variable.
func (r *run) lookup(name string) Value {
	for s := r.scope; s != nil; s = s.parent {
		if v, ok := s.vars[name]; ok {
			return v
		}
	}
	return &undefined{fmt.Sprintf("%q is undefined", name)}
}

// loop runs a for statement over v. Each round has a scope of its own.
func (r *run) loop(n *forNode, v Value, depth int) error {
	if err := r.enter(); err != nil {
		return err
	}
	defer r.leave()
	items, err := r.iterate(v)
	if err != nil {
		return err
	}
	if n.filter != nil {
		if items, err = r.filterItems(n, items); err != nil {
			return err
		}
	}
	if len(items) == 0 {
		return r.inScope(r.scope, func() error {
			_, err := r.exec(n.elseBody)
			return err
		})
	}
	lp := &loopObject{items: items, depth: depth, node: n, scope: r.scope}
	for i, item := range items {
		lp.at = i
		var ctl control
		err := r.inScope(r.scope, func() (err error) {
			r.scope.set("loop", lp)
			if err := r.assign(n.target, item); err != nil {
				return err
			}
			ctl, err = r.exec(n.body)
			return err
		})
		if err != nil {
			return err
		}
		if ctl == ctlBreak {
			break
		}
	}
	return nil
}

func (r *run) filterItems(n *forNode, items []Value) ([]Value, error) {
	var kept []Value
	for _, item := range items {
		err := r.inScope(r.scope, func() error {
			if err := r.assign(n.target, item); err != nil {
				return err
			}
			keep, err := r.eval(n.filter)
			if err == nil && truth(keep) {
				kept = append(kept, item)
				err = r.alloc(32)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return kept, nil
}

// callMacro runs a macro and returns its text.
func (r *run) callMacro(m *macro, a args) (Value, error) {
	d := m.def
	if len(a.pos) > len(d.params) && !d.usesArgs {
		return nil, fmt.Errorf("macro %q takes not more than %d argument(s)", d.name, len(d.params))
	}
	text, err := r.capture(func() error {
		return r.inScope(m.scope, func() error {
			used := make([]bool, len(a.names))
			for i, name := range d.params {
				switch at := indexOf(a.names, name); {
				case i < len(a.pos):
					r.scope.set(name, a.pos[i])
				case at >= 0:
					used[at] = true
					r.scope.set(name, a.vals[at])
				case d.defaults[i] != nil:
					v, err := r.eval(d.defaults[i])
					if err != nil {
						return err
					}
					r.scope.set(name, v)
				default:
					r.scope.set(name, &undefined{fmt.Sprintf("parameter %q was not provided", name)})
				}
				if err := r.alloc(48); err != nil {
					return err
				}
			}
			if err := r.bindRest(d, a, used); err != nil {
				return err
			}
			_, err := r.exec(d.body)
			return err
		})
	})
	return text, err
}

// bindRest gives a macro the arguments that its parameters have left over.
func (r *run) bindRest(d *macroDef, a args, used []bool) error {
	if d.usesCall && indexOf(d.params, "caller") < 0 {
		r.scope.set("caller", &undefined{"No caller defined"})
	}
	rest := newDict()
	for i, name := range a.names {
		switch {
		case used[i]:
		case name == "caller" && d.usesCall:
			r.scope.set("caller", a.vals[i])
		case d.usesKw:
			rest.setString(name, a.vals[i])
		default:
			return fmt.Errorf("macro %q takes no keyword argument %q", d.name, name)
		}
	}
	if d.usesKw {
		r.scope.set("kwargs", rest)
	}
	if d.usesArgs {
		r.scope.set("varargs", newTuple(a.pos[min(len(a.pos), len(d.params)):]...))
	}
	return r.items(len(a.pos) + 4*len(a.names))
}

func indexOf(list []string, s string) int {
	for i, x := range list {
		if x == s {
			return i
		}
	}
	return -1
}
