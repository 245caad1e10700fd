package jinja

// note records that a name is used inside the macros around it.
func (p *parser) note(name string) {
	for _, m := range p.names {
		switch name {
		case "varargs":
			m.usesArgs = true
		case "kwargs":
			m.usesKw = true
		case "caller":
			m.usesCall = true
		}
	}
}

// macroBody parses "%} ... {% end %}" of a macro or call block.
func (p *parser) macroBody(m *macroDef, end string) error {
	p.names = append(p.names, m)
	// A loop around the macro cannot be left from inside of it.
	loops := p.loops
	p.loops = 0
	var err error
	m.body, _, err = p.block(end)
	p.loops = loops
	p.names = p.names[:len(p.names)-1]
	return err
}

func (p *parser) signature(m *macroDef) error {
	if err := p.expectOp("("); err != nil {
		return err
	}
	for !p.peek().isOp(")") {
		if len(m.params) > 0 {
			if err := p.expectOp(","); err != nil {
				return err
			}
		}
		name, err := p.expectName()
		if err != nil {
			return err
		}
		var value expr
		if p.skipOp("=") {
			if value, err = p.expression(true); err != nil {
				return err
			}
		} else if len(m.defaults) > 0 && m.defaults[len(m.defaults)-1] != nil {
			return p.errorf(p.peek(), "parameter %s without default follows one with a default", name)
		}
		m.params, m.defaults = append(m.params, name), append(m.defaults, value)
	}
	return p.expectOp(")")
}

func (p *parser) macroTag() (node, error) {
	name, err := p.expectName()
	if err != nil {
		return nil, err
	}
	m := &macroDef{name: name}
	if err := p.signature(m); err != nil {
		return nil, err
	}
	return &macroNode{name, m}, p.macroBody(m, "endmacro")
}

func (p *parser) callTag() (node, error) {
	m := &macroDef{name: "caller"}
	if p.peek().isOp("(") {
		if err := p.signature(m); err != nil {
			return nil, err
		}
	}
	t := p.peek()
	value, err := p.expression(true)
	if err != nil {
		return nil, err
	}
	call, ok := value.(*callExpr)
	if !ok {
		return nil, p.errorf(t, "expected a call")
	}
	return &callNode{call, m}, p.macroBody(m, "endcall")
}
