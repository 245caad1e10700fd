package jinja

import "strconv"

// postfix parses .name, [index] and (call) after value.
func (p *parser) postfix(value expr) (expr, error) {
	var err error
	for err == nil {
		t := p.peek()
		switch {
		case t.isOp("."):
			p.pos++
			name := p.next()
			switch name.kind {
			case tokName:
				value = &attrExpr{value, name.text, t.line}
			case tokInt:
				n, fault := strconv.ParseInt(name.text, 10, 64)
				if fault != nil {
					return nil, p.errorf(name, "the number %s is out of range", name.text)
				}
				value = &itemExpr{value, &constExpr{n}, t.line}
			default:
				return nil, p.errorf(name, "expected a name or number, got %v", name)
			}
		case t.isOp("["):
			p.pos++
			var index expr
			if index, err = p.subscript(); err == nil {
				value = &itemExpr{value, index, t.line}
			}
		case t.isOp("("):
			value, err = p.call(value)
		default:
			return value, nil
		}
		err = p.chain(&value, err)
	}
	return nil, err
}

func (p *parser) subscript() (expr, error) {
	var items []expr
	for !p.skipOp("]") {
		if len(items) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		item, err := p.sliceOrIndex()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	if len(items) == 1 {
		return items[0], nil
	}
	return &tupleExpr{items}, nil
}

func (p *parser) sliceOrIndex() (expr, error) {
	var parts [3]expr
	n := 0
	for {
		t := p.peek()
		if t.isOp(":") && n < 2 {
			p.pos++
			n++
			continue
		}
		if t.isOp("]") || t.isOp(",") {
			break
		}
		if parts[n] != nil {
			return nil, p.errorf(t, "expected \"]\", got %v", t)
		}
		value, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		parts[n] = value
	}
	if n == 0 {
		if parts[0] == nil {
			return nil, p.errorf(p.peek(), "expected an index, got %v", p.peek())
		}
		return parts[0], nil
	}
	return &sliceExpr{parts[0], parts[1], parts[2]}, nil
}

// filters parses |filter, "is test" and (call) after value.
func (p *parser) filters(value expr) (expr, error) {
	var err error
	for err == nil {
		t := p.peek()
		switch {
		case t.isOp("|"):
			p.pos++
			value, err = p.filter(value)
		case t.isName("is"):
			p.pos++
			value, err = p.test(value, t.line)
		case t.isOp("("):
			value, err = p.call(value)
		default:
			return value, nil
		}
		err = p.chain(&value, err)
	}
	return nil, err
}

func (p *parser) filter(value expr) (expr, error) {
	line := p.peek().line
	name, err := p.dottedName()
	if err != nil {
		return nil, err
	}
	f := &filterExpr{value: value, name: name, line: line}
	if p.peek().isOp("(") {
		f.args, err = p.args()
	}
	return f, err
}

func (p *parser) dottedName() (string, error) {
	name, err := p.expectName()
	for err == nil && p.skipOp(".") {
		var more string
		more, err = p.expectName()
		name += "." + more
	}
	return name, err
}

func (p *parser) test(value expr, line int) (expr, error) {
	negated := p.skipName("not")
	name, err := p.dottedName()
	if err != nil {
		return nil, err
	}
	n := &testExpr{value: value, name: name, line: line}
	switch t := p.peek(); {
	case t.isOp("("):
		n.args, err = p.args()
	case t.kind == tokName && t.text != "else" && t.text != "or" && t.text != "and",
		t.kind == tokString, t.kind == tokInt, t.kind == tokFloat, t.isOp("["), t.isOp("{"):
		if t.isName("is") {
			return nil, p.errorf(t, "tests cannot be chained with is")
		}
		var arg expr
		if arg, err = p.primary(); err == nil {
			arg, err = p.postfix(arg)
		}
		n.args.pos = []expr{arg}
	}
	if negated {
		return &notExpr{n}, err
	}
	return n, err
}

func (p *parser) call(fn expr) (expr, error) {
	line := p.peek().line
	args, err := p.args()
	return &callExpr{fn, args, line}, err
}

func (p *parser) args() (callArgs, error) {
	var a callArgs
	open := p.next() // "("
	bad := func() (callArgs, error) {
		return a, p.errorf(open, "invalid syntax in the arguments of a call")
	}
	for first := true; !p.skipOp(")"); first = false {
		if !first {
			if err := p.expectOp(","); err != nil {
				return a, err
			}
			if p.skipOp(")") {
				break
			}
		}
		var err error
		switch t := p.peek(); {
		case p.skipOp("*"):
			if a.dynPos != nil || a.dynNamed != nil {
				return bad()
			}
			a.dynPos, err = p.expression(true)
		case p.skipOp("**"):
			if a.dynNamed != nil {
				return bad()
			}
			a.dynNamed, err = p.expression(true)
		case t.kind == tokName && p.tokens[p.pos+1].isOp("="):
			if a.dynNamed != nil {
				return bad()
			}
			p.pos += 2
			var value expr
			value, err = p.expression(true)
			a.names, a.named = append(a.names, t.text), append(a.named, value)
		default:
			if a.dynPos != nil || a.dynNamed != nil || len(a.named) > 0 {
				return bad()
			}
			var value expr
			value, err = p.expression(true)
			a.pos = append(a.pos, value)
		}
		if err != nil {
			return a, err
		}
	}
	return a, nil
}
