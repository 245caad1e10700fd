package jinja

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// jsonWriter writes values as Python's json.dumps does.
type jsonWriter struct {
	textBuilder
	ascii    bool
	sortKeys bool
	indent   *string // nil: on one line
	itemSep  string
	keySep   string
	level    int
}

// filterToJSON is transformers' tojson: json.dumps with ensure_ascii off by
// default, and no HTML escapes.
func filterToJSON(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("tojson", 0, "ensure_ascii", "indent", "separators", "sort_keys")
	if err != nil {
		return nil, err
	}
	w := &jsonWriter{textBuilder: textBuilder{r: r}, ascii: b.bool(0, false), sortKeys: b.bool(3, false), itemSep: ", ", keySep: ": "}
	switch indent := b.value(1, nil).(type) {
	case nil:
	case string:
		w.indent = &indent
	default:
		n, err := b.int(1, 0)
		if err != nil {
			return nil, err
		}
		s, err := r.repeat(" ", n)
		if err != nil {
			return nil, err
		}
		w.indent = &s
	}
	if w.indent != nil {
		w.itemSep = ","
	}
	if seps := b.value(2, nil); seps != nil {
		l, ok := seps.(*list)
		if !ok || len(l.items) != 2 {
			return nil, errors.New("separators must be a pair of str")
		}
		item, ok1 := l.items[0].(string)
		key, ok2 := l.items[1].(string)
		if !ok1 || !ok2 {
			return nil, errors.New("separators must be a pair of str")
		}
		w.itemSep, w.keySep = item, key
	}
	if err := w.write(v); err != nil {
		return nil, err
	}
	return w.sb.String(), nil
}

func (w *jsonWriter) write(v Value) error {
	switch v := v.(type) {
	case nil:
		return w.add("null")
	case bool:
		return w.add(strconv.FormatBool(v))
	case int64:
		return w.add(strconv.FormatInt(v, 10))
	case bigInt:
		return w.add(string(v))
	case float64:
		return w.add(jsonFloat(v))
	case string:
		return w.quote(v)
	}
	if err := w.r.enter(); err != nil {
		return err
	}
	defer w.r.leave()
	switch v := v.(type) {
	case *list:
		if v.is(kindList, kindTuple) {
			return w.array(v)
		}
	case *dict:
		return w.object(v)
	}
	return fmt.Errorf("object of type %s is not JSON serializable", typeName(v))
}

func jsonFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case math.IsNaN(f):
		return "NaN"
	}
	return formatFloat(f)
}

// newline starts a line, if there is an indent.
func (w *jsonWriter) newline() error {
	if w.indent == nil {
		return nil
	}
	if err := w.add("\n"); err != nil {
		return err
	}
	for range w.level {
		if err := w.add(*w.indent); err != nil {
			return err
		}
	}
	return nil
}

// group writes n members between brackets.
func (w *jsonWriter) group(open, end string, n int, member func(i int) error) error {
	if n == 0 {
		return w.add(open + end)
	}
	if err := w.add(open); err != nil {
		return err
	}
	w.level++
	for i := range n {
		if i > 0 {
			if err := w.add(w.itemSep); err != nil {
				return err
			}
		}
		if err := w.newline(); err != nil {
			return err
		}
		if err := member(i); err != nil {
			return err
		}
	}
	w.level--
	if err := w.newline(); err != nil {
		return err
	}
	return w.add(end)
}

func (w *jsonWriter) array(l *list) error {
	return w.group("[", "]", len(l.items), func(i int) error { return w.write(l.items[i]) })
}

func (w *jsonWriter) object(d *dict) error {
	order := make([]int, len(d.keys))
	for i := range order {
		order[i] = i
	}
	if err := w.r.items(len(order)); err != nil {
		return err
	}
	if w.sortKeys {
		var fault error
		slices.SortStableFunc(order, func(i, j int) int {
			c, err := w.r.order("<", d.keys[i], d.keys[j])
			if err != nil && fault == nil {
				fault = err
			}
			return c
		})
		if fault != nil {
			return fault
		}
	}
	return w.group("{", "}", len(order), func(i int) error {
		key, err := jsonKey(d.keys[order[i]])
		if err != nil {
			return err
		}
		if err := w.quote(key); err != nil {
			return err
		}
		if err := w.add(w.keySep); err != nil {
			return err
		}
		return w.write(d.vals[order[i]])
	})
}

func jsonKey(k Value) (string, error) {
	switch k := k.(type) {
	case string:
		return k, nil
	case nil:
		return "null", nil
	case bool:
		return strconv.FormatBool(k), nil
	case int64:
		return strconv.FormatInt(k, 10), nil
	case float64:
		return jsonFloat(k), nil
	}
	return "", fmt.Errorf("keys must be str, int, float, bool or None, not %s", typeName(k))
}

func (w *jsonWriter) quote(s string) error {
	if err := w.r.work(len(s)); err != nil {
		return err
	}
	var sb strings.Builder
	sb.WriteByte('"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			sb.WriteByte('\\')
			sb.WriteRune(c)
		case c == '\n':
			sb.WriteString(`\n`)
		case c == '\r':
			sb.WriteString(`\r`)
		case c == '\t':
			sb.WriteString(`\t`)
		case c == '\b':
			sb.WriteString(`\b`)
		case c == '\f':
			sb.WriteString(`\f`)
		case c < ' ' || w.ascii && c >= 0x7f && c < 0x10000:
			fmt.Fprintf(&sb, `\u%04x`, c)
		case w.ascii && c >= 0x10000:
			hi, lo := utf16.EncodeRune(c)
			fmt.Fprintf(&sb, `\u%04x\u%04x`, hi, lo)
		default:
			sb.WriteRune(c)
		}
	}
	sb.WriteByte('"')
	return w.add(sb.String())
}
