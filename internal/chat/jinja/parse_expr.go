package jinja

import (
	"slices"
	"strconv"
)

var constNames = map[string]bool{
	"true": true, "True": true, "false": true, "False": true, "none": true, "None": true,
}

// tuple parses one expression, or several with commas as a tuple. The words
// stops end it early.
func (p *parser) tuple(withCond bool, stops []string) (expr, error) {
	var items []expr
	isTuple := false
	for !p.tupleEnd(stops) {
		item, err := p.expression(withCond)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
		if !p.skipOp(",") {
			break
		}
		isTuple = true
	}
	switch {
	case isTuple:
		return &tupleExpr{items}, nil
	case len(items) == 0:
		return nil, p.errorf(p.peek(), "expected an expression, got %v", p.peek())
	}
	return items[0], nil
}

func (p *parser) tupleEnd(stops []string) bool {
	t := p.peek()
	return t.kind == tokVariableEnd || t.kind == tokBlockEnd || t.isOp(")") ||
		t.kind == tokName && slices.Contains(stops, t.text)
}

// expression parses a whole expression; withCond allows "a if b else c".
func (p *parser) expression(withCond bool) (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	value, err := p.or()
	if err != nil || !withCond {
		return value, err
	}
	// A chain "a if b else c if d else e" nests to the right; it is built in
	// a loop so that its length costs no stack here, and bounded because
	// evaluation descends it.
	top := value
	hole := &top
	base := hole // where the conditions since the last else began
	for n := 0; p.skipName("if"); n++ {
		if n >= maxNesting {
			return nil, p.errorf(p.peek(), "more than %d conditions in one expression", maxNesting)
		}
		c := &condExpr{yes: *hole}
		if c.cond, err = p.or(); err != nil {
			return nil, err
		}
		*hole = c
		if !p.skipName("else") {
			// "(a if b) if c": what stands so far is the value of the next.
			hole = base
			continue
		}
		if c.no, err = p.or(); err != nil {
			return nil, err
		}
		hole = &c.no
		base = hole
	}
	return top, nil
}

func (p *parser) or() (expr, error)  { return p.logic(false) }
func (p *parser) and() (expr, error) { return p.logic(true) }

func (p *parser) logic(and bool) (expr, error) {
	word, operand := "or", p.and
	if and {
		word, operand = "and", p.not
	}
	left, err := operand()
	for err == nil && p.skipName(word) {
		var right expr
		right, err = operand()
		left = &logicExpr{and, left, right}
		err = p.chain(&left, err)
	}
	return left, err
}

// chain counts the links of left-leaning trees: evaluation descends them, so
// their length is bounded like any nesting, but by more.
func (p *parser) chain(left *expr, err error) error {
	if err != nil {
		return err
	}
	if depthOf(*left) > maxChain {
		return p.errorf(p.peek(), "more than %d operators in a row", maxChain)
	}
	return nil
}

// maxChain bounds operators, filters and subscripts in a row.
const maxChain = 100

// depthOf returns how far the tree goes down on its left side.
func depthOf(e expr) int {
	for n := 0; ; n++ {
		switch x := e.(type) {
		case *logicExpr:
			e = x.left
		case *binaryExpr:
			e = x.left
		case *attrExpr:
			e = x.value
		case *itemExpr:
			e = x.value
		case *callExpr:
			e = x.fn
		case *filterExpr:
			e = x.value
		case *testExpr:
			e = x.value
		case *notExpr:
			e = x.value
		case *unaryExpr:
			e = x.value
		default:
			return n
		}
	}
}

func (p *parser) not() (expr, error) {
	if p.skipName("not") {
		if err := p.enter(); err != nil {
			return nil, err
		}
		defer p.leave()
		value, err := p.not()
		return &notExpr{value}, err
	}
	return p.compare()
}

func (p *parser) compare() (expr, error) {
	first, err := p.arith(0)
	if err != nil {
		return nil, err
	}
	n := &compareExpr{first: first, line: p.peek().line}
	for {
		t := p.peek()
		op := ""
		switch {
		case t.kind == tokOp && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text):
			op = t.text
			p.pos++
		case t.isName("in"):
			op = "in"
			p.pos++
		case t.isName("not") && p.tokens[p.pos+1].isName("in"):
			op = "not in"
			p.pos += 2
		}
		if op == "" {
			break
		}
		right, err := p.arith(0)
		if err != nil {
			return nil, err
		}
		n.ops, n.rest = append(n.ops, op), append(n.rest, right)
	}
	if len(n.ops) == 0 {
		return first, nil
	}
	return n, nil
}

// arithOps are the operators by level: sums, then ~, then products, powers.
var arithOps = [][]string{{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}}

func (p *parser) arith(level int) (expr, error) {
	if level == len(arithOps) {
		return p.unary(true)
	}
	left, err := p.arith(level + 1)
	for err == nil {
		t := p.peek()
		if t.kind != tokOp || !slices.Contains(arithOps[level], t.text) {
			break
		}
		p.pos++
		var right expr
		if right, err = p.arith(level + 1); err != nil {
			break
		}
		if t.text == "~" {
			if c, ok := left.(*concatExpr); ok {
				c.items = append(c.items, right)
			} else {
				left = &concatExpr{[]expr{left, right}}
			}
			continue
		}
		left = &binaryExpr{t.text, left, right, t.line}
		err = p.chain(&left, err)
	}
	return left, err
}

func (p *parser) unary(withFilter bool) (expr, error) {
	t := p.peek()
	var (
		value expr
		err   error
	)
	if t.isOp("-") || t.isOp("+") {
		if err := p.enter(); err != nil {
			return nil, err
		}
		p.pos++
		value, err = p.unary(false)
		p.leave()
		value = &unaryExpr{t.text == "-", value, t.line}
	} else {
		value, err = p.primary()
	}
	if err != nil {
		return nil, err
	}
	if value, err = p.postfix(value); err != nil || !withFilter {
		return value, err
	}
	return p.filters(value)
}

func (p *parser) primary() (expr, error) {
	t := p.next()
	switch t.kind {
	case tokName:
		switch t.text {
		case "true", "True":
			return &constExpr{true}, nil
		case "false", "False":
			return &constExpr{false}, nil
		case "none", "None":
			return &constExpr{nil}, nil
		}
		p.note(t.text)
		return &nameExpr{t.text}, nil
	case tokString:
		text := t.text
		for p.peek().kind == tokString {
			text += p.next().text
		}
		return &constExpr{text}, nil
	case tokInt:
		v, err := strconv.ParseInt(t.text, 0, 64)
		if err != nil {
			// Python has no octal "010", but Jinja reads it as decimal.
			if v, err = strconv.ParseInt(t.text, 10, 64); err != nil {
				return nil, p.errorf(t, "the number %s is out of range", t.text)
			}
		}
		return &constExpr{v}, nil
	case tokFloat:
		v, err := strconv.ParseFloat(t.text, 64)
		if err != nil {
			return nil, p.errorf(t, "the number %s is out of range", t.text)
		}
		return &constExpr{v}, nil
	case tokOp:
		switch t.text {
		case "(":
			if p.skipOp(")") {
				return &tupleExpr{}, nil
			}
			value, err := p.tuple(true, nil)
			if err != nil {
				return nil, err
			}
			return value, p.expectOp(")")
		case "[":
			items, err := p.items("]")
			return &listExpr{items}, err
		case "{":
			return p.dict()
		}
	}
	return nil, p.errorf(t, "unexpected %v", t)
}

// items parses expressions with commas up to end, which it consumes.
func (p *parser) items(end string) ([]expr, error) {
	var items []expr
	for !p.skipOp(end) {
		if len(items) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
			if p.skipOp(end) {
				break
			}
		}
		item, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

func (p *parser) dict() (expr, error) {
	d := &dictExpr{}
	for !p.skipOp("}") {
		if len(d.keys) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
			if p.skipOp("}") {
				break
			}
		}
		key, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		if err := p.expectOp(":"); err != nil {
			return nil, err
		}
		value, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		d.keys, d.values = append(d.keys, key), append(d.values, value)
	}
	return d, nil
}
