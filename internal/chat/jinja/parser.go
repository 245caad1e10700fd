package jinja

import (
	"fmt"
	"slices"
)

// maxNesting bounds how deep tags and brackets may stand in each other. The
// parser's recursion, and with it the stack, is bounded by it.
const maxNesting = 100

// parser builds the tree, by jinja2.parser.Parser. Statements are in this
// file, expressions in parse_expr.go.
type parser struct {
	tokens []token
	pos    int
	depth  int
	loops  int         // for bodies around the current statement
	names  []*macroDef // macros around it, for which names are noted
}

func (p *parser) peek() token { return p.tokens[p.pos] }

// next returns the current token and moves on; the end is never passed.
func (p *parser) next() token {
	t := p.tokens[p.pos]
	if t.kind != tokEOF {
		p.pos++
	}
	return t
}

func (p *parser) errorf(t token, format string, args ...any) error {
	return fmt.Errorf("line %d: %s", t.line, fmt.Sprintf(format, args...))
}

func (t token) isOp(op string) bool     { return t.kind == tokOp && t.text == op }
func (t token) isName(name string) bool { return t.kind == tokName && t.text == name }

func (p *parser) skipOp(op string) bool {
	if p.peek().isOp(op) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.peek().isName(name) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) expectOp(op string) error {
	if t := p.peek(); !p.skipOp(op) {
		return p.errorf(t, "expected %q, got %v", op, t)
	}
	return nil
}

func (p *parser) expectName() (string, error) {
	t := p.next()
	if t.kind != tokName {
		return "", p.errorf(t, "expected a name, got %v", t)
	}
	return t.text, nil
}

func (p *parser) enter() error {
	p.depth++
	if p.depth > maxNesting {
		return p.errorf(p.peek(), "nested more than %d deep", maxNesting)
	}
	return nil
}

func (p *parser) leave() { p.depth-- }

// body parses statements up to a tag named one of ends, whose name it
// consumes and returns. Without ends it parses up to the end of the template.
func (p *parser) body(ends ...string) (nodes []node, end string, err error) {
	if err := p.enter(); err != nil {
		return nil, "", err
	}
	defer p.leave()
	for {
		switch t := p.next(); t.kind {
		case tokEOF:
			if len(ends) > 0 {
				return nil, "", p.errorf(t, "end of template, but a tag is open that needs %v", ends)
			}
			return nodes, "", nil
		case tokData:
			nodes = append(nodes, &dataNode{t.text})
		case tokVariableBegin:
			value, err := p.tuple(true, nil)
			if err != nil {
				return nil, "", err
			}
			if end := p.next(); end.kind != tokVariableEnd {
				return nil, "", p.errorf(end, "expected }}, got %v", end)
			}
			nodes = append(nodes, &outputNode{value})
		case tokBlockBegin:
			if name := p.peek(); name.kind == tokName && slices.Contains(ends, name.text) {
				p.pos++
				return nodes, name.text, nil
			}
			n, err := p.statement()
			if err != nil {
				return nil, "", err
			}
			if err := p.blockEnd(); err != nil {
				return nil, "", err
			}
			nodes = append(nodes, n...)
		default:
			return nil, "", p.errorf(t, "unexpected %v", t)
		}
	}
}

func (p *parser) blockEnd() error {
	if t := p.next(); t.kind != tokBlockEnd {
		return p.errorf(t, "expected %%}, got %v", t)
	}
	return nil
}

// block parses "%} ... {% end": the rest of an opening tag, the body and the
// name of the closing tag.
func (p *parser) block(ends ...string) ([]node, string, error) {
	if err := p.blockEnd(); err != nil {
		return nil, "", err
	}
	return p.body(ends...)
}

func (p *parser) statement() ([]node, error) {
	t := p.next()
	if t.kind != tokName {
		return nil, p.errorf(t, "expected the name of a tag, got %v", t)
	}
	one := func(n node, err error) ([]node, error) {
		if err != nil {
			return nil, err
		}
		return []node{n}, nil
	}
	switch t.text {
	case "if":
		return one(p.ifTag())
	case "for":
		return one(p.forTag())
	case "set":
		return one(p.setTag())
	case "macro":
		return one(p.macroTag())
	case "call":
		return one(p.callTag())
	case "filter":
		return one(p.filterTag())
	case "with":
		return one(p.withTag())
	case "print":
		return p.printTag()
	case "block":
		if _, err := p.expectName(); err != nil {
			return nil, err
		}
		for p.skipName("scoped") || p.skipName("required") {
		}
		body, _, err := p.block("endblock")
		if p.peek().kind == tokName {
			p.pos++ // the name may be repeated
		}
		return one(&scopeNode{body}, err)
	case "generation":
		body, _, err := p.block("endgeneration")
		return one(&scopeNode{body}, err)
	case "break", "continue":
		if p.loops == 0 {
			return nil, p.errorf(t, "%s outside of a loop", t.text)
		}
		if t.text == "break" {
			return []node{breakNode{}}, nil
		}
		return []node{continueNode{}}, nil
	case "include", "import", "from", "extends":
		return nil, p.errorf(t, "%s is not supported: a chat template is one file", t.text)
	}
	return nil, p.errorf(t, "unknown tag %q", t.text)
}

func (p *parser) ifTag() (node, error) {
	n := &ifNode{}
	for end := "if"; end != "endif"; {
		var (
			cond expr
			err  error
		)
		if end != "else" {
			if cond, err = p.tuple(false, nil); err != nil {
				return nil, err
			}
		}
		ends := []string{"elif", "else", "endif"}
		if end == "else" {
			ends = ends[2:]
		}
		was := end
		var body []node
		if body, end, err = p.block(ends...); err != nil {
			return nil, err
		}
		if was == "else" {
			n.elseBody = body
		} else {
			n.branches = append(n.branches, ifBranch{cond, body})
		}
	}
	return n, nil
}

func (p *parser) forTag() (node, error) {
	n := &forNode{}
	var err error
	if n.target, err = p.target(false, "in"); err != nil {
		return nil, err
	}
	if t := p.next(); !t.isName("in") {
		return nil, p.errorf(t, "expected \"in\", got %v", t)
	}
	if n.iter, err = p.tuple(false, []string{"recursive"}); err != nil {
		return nil, err
	}
	if p.skipName("if") {
		if n.filter, err = p.expression(true); err != nil {
			return nil, err
		}
	}
	n.recursive = p.skipName("recursive")
	p.loops++
	var end string
	n.body, end, err = p.block("endfor", "else")
	p.loops--
	if err != nil {
		return nil, err
	}
	if end == "else" {
		n.elseBody, _, err = p.block("endfor")
	}
	return n, err
}

// target parses what is assigned to: names, possibly in a tuple. namespace
// allows ns.attr. The word stop ends it.
func (p *parser) target(namespace bool, stop string) (expr, error) {
	var items []expr
	isTuple := false
	for {
		t := p.peek()
		if t.kind == tokBlockEnd || t.isOp("=") || t.isOp(")") || t.isName(stop) {
			break
		}
		p.pos++
		switch {
		case t.isOp("("):
			if err := p.enter(); err != nil {
				return nil, err
			}
			inner, err := p.target(namespace, stop)
			p.leave()
			if err != nil {
				return nil, err
			}
			if err := p.expectOp(")"); err != nil {
				return nil, err
			}
			items = append(items, inner)
		case t.kind != tokName || constNames[t.text]:
			return nil, p.errorf(t, "cannot assign to %v", t)
		case namespace && p.skipOp("."):
			attr, err := p.expectName()
			if err != nil {
				return nil, err
			}
			items = append(items, &nsRefExpr{t.text, attr})
			p.note(t.text)
		default:
			items = append(items, &nameExpr{t.text})
		}
		if !p.skipOp(",") {
			break
		}
		isTuple = true
	}
	switch {
	case len(items) == 0:
		return nil, p.errorf(p.peek(), "expected a name to assign to, got %v", p.peek())
	case isTuple:
		return &tupleExpr{items}, nil
	}
	return items[0], nil
}

func (p *parser) setTag() (node, error) {
	target, err := p.target(true, "")
	if err != nil {
		return nil, err
	}
	if p.skipOp("=") {
		value, err := p.tuple(true, nil)
		return &setNode{target, value}, err
	}
	n := &setBlockNode{target: target}
	if p.peek().isOp("|") {
		if n.filters, err = p.filters(captureExpr{}); err != nil {
			return nil, err
		}
	}
	n.body, _, err = p.block("endset")
	return n, err
}

func (p *parser) filterTag() (node, error) {
	first, err := p.filter(captureExpr{})
	if err != nil {
		return nil, err
	}
	n := &filterNode{}
	if n.filters, err = p.filters(first); err != nil {
		return nil, err
	}
	n.body, _, err = p.block("endfilter")
	return n, err
}

func (p *parser) withTag() (node, error) {
	n := &withNode{}
	for p.peek().kind != tokBlockEnd {
		if len(n.targets) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		name, err := p.expectName()
		if err != nil {
			return nil, err
		}
		if err := p.expectOp("="); err != nil {
			return nil, err
		}
		value, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		n.targets, n.values = append(n.targets, &nameExpr{name}), append(n.values, value)
	}
	var err error
	n.body, _, err = p.block("endwith")
	return n, err
}

func (p *parser) printTag() ([]node, error) {
	var nodes []node
	for p.peek().kind != tokBlockEnd {
		if len(nodes) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		value, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, &outputNode{value})
	}
	return nodes, nil
}
