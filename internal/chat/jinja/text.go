package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// textBuilder builds a string inside the limits.
type textBuilder struct {
	r  *run
	sb strings.Builder
}

func (b *textBuilder) add(s string) error {
	if b.sb.Len()+len(s) > b.r.limits.Text {
		return b.r.text(b.sb.Len() + len(s)) // the error
	}
	b.sb.WriteString(s)
	return b.r.alloc(len(s))
}

// joinText joins parts, whose bytes without separators are size together.
func (r *run) joinText(parts []string, sep string, size int) (string, error) {
	if len(sep) > 0 && len(parts) > 1 {
		if len(sep) > r.limits.Text || len(parts) > r.limits.Text {
			return "", r.text(r.limits.Text + 1)
		}
		size += len(sep) * (len(parts) - 1)
	}
	if err := r.text(size); err != nil {
		return "", err
	}
	return strings.Join(parts, sep), nil
}

// repeat is s * n inside the limits.
func (r *run) repeat(s string, n int64) (string, error) {
	if n <= 0 || s == "" {
		return "", nil
	}
	if n > int64(r.limits.Text) {
		return "", r.text(r.limits.Text + 1)
	}
	if err := r.text(len(s) * int(n)); err != nil {
		return "", err
	}
	return strings.Repeat(s, int(n)), nil
}

// str is Python's str(v).
func (r *run) str(v Value) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case *undefined:
		return "", nil
	}
	return r.repr(v)
}

// repr is Python's repr(v).
func (r *run) repr(v Value) (string, error) {
	switch v := v.(type) {
	case nil:
		return "None", nil
	case bool:
		if v {
			return "True", nil
		}
		return "False", nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case float64:
		return formatFloat(v), nil
	case bigInt:
		return string(v), nil
	case *undefined:
		return "Undefined", nil
	}
	b := &textBuilder{r: r}
	err := b.repr(v)
	return b.sb.String(), err
}

func (b *textBuilder) repr(v Value) error {
	if err := b.r.enter(); err != nil {
		return err
	}
	defer b.r.leave()
	switch v := v.(type) {
	case string:
		return b.quote(v)
	case *list:
		switch v.kind {
		case kindRange:
			return b.add(v.name)
		case kindGenerator:
			return fmt.Errorf("a generator cannot be printed; use the list or join filter")
		case kindView:
			if err := b.add(v.name + "(["); err != nil {
				return err
			}
			if err := b.reprItems(v); err != nil {
				return err
			}
			return b.add("])")
		case kindTuple:
			if err := b.add("("); err != nil {
				return err
			}
			if err := b.reprItems(v); err != nil {
				return err
			}
			if len(v.items) == 1 {
				return b.add(",)")
			}
			return b.add(")")
		}
		if err := b.add("["); err != nil {
			return err
		}
		if err := b.reprItems(v); err != nil {
			return err
		}
		return b.add("]")
	case *dict:
		return b.reprDict(v)
	case *namespace:
		d := newDict()
		for _, name := range v.names {
			d.setString(name, v.vars[name])
		}
		if err := b.add("<Namespace "); err != nil {
			return err
		}
		if err := b.reprDict(d); err != nil {
			return err
		}
		return b.add(">")
	case *macro:
		return b.add(fmt.Sprintf("<Macro '%s'>", v.def.name))
	case *loopObject:
		return b.add(fmt.Sprintf("<LoopContext %d/%d>", v.at+1, len(v.items)))
	case *function:
		return fmt.Errorf("the function %s cannot be printed", v.name)
	}
	s, err := b.r.repr(v)
	if err != nil {
		return err
	}
	return b.add(s)
}

func (b *textBuilder) reprItems(l *list) error {
	for i, item := range l.items {
		if i > 0 {
			if err := b.add(", "); err != nil {
				return err
			}
		}
		if err := b.repr(item); err != nil {
			return err
		}
	}
	return nil
}

func (b *textBuilder) reprDict(d *dict) error {
	sep := "{"
	for i, k := range d.keys {
		if err := b.add(sep); err != nil {
			return err
		}
		sep = ", "
		if err := b.repr(k); err != nil {
			return err
		}
		if err := b.add(": "); err != nil {
			return err
		}
		if err := b.repr(d.vals[i]); err != nil {
			return err
		}
	}
	if len(d.keys) == 0 {
		return b.add("{}")
	}
	return b.add("}")
}

// quote writes s as Python's repr does.
func (b *textBuilder) quote(s string) error {
	quote := '\''
	if strings.ContainsRune(s, '\'') && !strings.ContainsRune(s, '"') {
		quote = '"'
	}
	if err := b.r.work(len(s)); err != nil {
		return err
	}
	var sb strings.Builder
	sb.WriteRune(quote)
	for _, c := range s {
		switch {
		case c == quote || c == '\\':
			sb.WriteByte('\\')
			sb.WriteRune(c)
		case c == '\n':
			sb.WriteString(`\n`)
		case c == '\r':
			sb.WriteString(`\r`)
		case c == '\t':
			sb.WriteString(`\t`)
		case c == ' ' || unicode.IsPrint(c):
			sb.WriteRune(c)
		case c < 0x100:
			fmt.Fprintf(&sb, `\x%02x`, c)
		case c < 0x10000:
			fmt.Fprintf(&sb, `\u%04x`, c)
		default:
			fmt.Fprintf(&sb, `\U%08x`, c)
		}
	}
	sb.WriteRune(quote)
	return b.add(sb.String())
}

// formatFloat is Python's repr of a float.
func formatFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	exp, _ := strconv.Atoi(s[strings.IndexByte(s, 'e')+1:])
	if exp < -4 || exp >= 16 {
		return s
	}
	s = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// runeCount counts the characters of s, and the work.
func (r *run) runeCount(s string) (int, error) {
	return utf8.RuneCountInString(s), r.work(len(s))
}

// iterate returns the items that a for loop sees. The caller must not write to them.
func (r *run) iterate(v Value) ([]Value, error) {
	switch v := v.(type) {
	case *list:
		items := v.items
		if v.kind == kindGenerator {
			v.items = nil // a generator is read once
		}
		return items, r.step(1 + int64(len(items))/16)
	case *dict:
		return v.keys, r.step(1)
	case string:
		n, err := r.runeCount(v)
		if err != nil {
			return nil, err
		}
		if n > r.limits.Items {
			return nil, r.items(n)
		}
		if err := r.alloc(32 * n); err != nil {
			return nil, err
		}
		items := make([]Value, 0, n)
		for len(v) > 0 {
			_, size := utf8.DecodeRuneInString(v)
			items = append(items, v[:size])
			v = v[size:]
		}
		return items, nil
	case *undefined:
		return nil, nil
	}
	return nil, fmt.Errorf("%q object is not iterable", typeName(v))
}
