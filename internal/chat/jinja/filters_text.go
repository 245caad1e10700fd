package jinja

import (
	"errors"
	"strings"
	"unicode/utf8"
)

func filterTrim(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("trim", 0, "chars")
	if err != nil {
		return nil, err
	}
	chars, given, err := b.strOrNone(0, "")
	if err != nil {
		return nil, err
	}
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	if err := r.work(len(s)); err != nil {
		return nil, err
	}
	return r.stripText(s, chars, given, true, true)
}

func filterReplace(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("replace", 2, "old", "new", "count")
	if err != nil {
		return nil, err
	}
	var s [3]string
	for i, x := range []Value{v, b.vals[0], b.vals[1]} {
		if s[i], err = r.str(x); err != nil {
			return nil, err
		}
	}
	count := int64(-1)
	if b.value(2, nil) != nil {
		if count, err = b.int(2, -1); err != nil {
			return nil, err
		}
	}
	return r.replaceText(s[0], s[1], s[2], count)
}

func filterCenter(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("center", 0, "width")
	if err != nil {
		return nil, err
	}
	width, err := b.int(0, 80)
	if err != nil {
		return nil, err
	}
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	return r.pad(s, width, " ", true, true)
}

func filterIndent(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("indent", 0, "width", "first", "blank")
	if err != nil {
		return nil, err
	}
	unit, isText := b.value(0, nil).(string)
	if !isText {
		width, err := b.int(0, 4)
		if err != nil {
			return nil, err
		}
		if unit, err = r.repeat(" ", width); err != nil {
			return nil, err
		}
	}
	s, ok := v.(string)
	if !ok {
		return nil, operandError("+", v, "")
	}
	if err := r.alloc(16 * min(len(s), r.limits.Items)); err != nil {
		return nil, err
	}
	// "a\n" has the lines "a" and "": do_indent adds a newline first.
	lines := splitLines(s+"\n", false)
	blank := b.bool(2, false)
	out := &textBuilder{r: r}
	for i, line := range lines {
		if i > 0 {
			if err := out.add("\n"); err != nil {
				return nil, err
			}
		}
		if i == 0 && b.bool(1, false) || i > 0 && (blank || line != "") {
			if err := out.add(unit); err != nil {
				return nil, err
			}
		}
		if err := out.add(line); err != nil {
			return nil, err
		}
	}
	return out.sb.String(), nil
}

func filterTruncate(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("truncate", 0, "length", "killwords", "end", "leeway")
	if err != nil {
		return nil, err
	}
	length, err := b.int(0, 255)
	if err != nil {
		return nil, err
	}
	end, err := b.str(2, "...")
	if err != nil {
		return nil, err
	}
	leeway := int64(5)
	if b.value(3, nil) != nil {
		if leeway, err = b.int(3, 5); err != nil {
			return nil, err
		}
	}
	s, ok := v.(string)
	if !ok {
		return nil, operandError("truncate", v, "")
	}
	n, err := r.runeCount(s)
	if err != nil {
		return nil, err
	}
	endLen := int64(utf8.RuneCountInString(end))
	if length < endLen || leeway < 0 {
		return nil, errors.New("truncate: the length is smaller than the end's, or the leeway is negative")
	}
	if int64(n)-leeway <= length {
		return s, nil
	}
	s = s[:runeOffset(s, int(length-endLen))]
	if !b.bool(1, false) {
		if i := strings.LastIndexByte(s, ' '); i >= 0 {
			s = s[:i]
		}
	}
	if err := r.text(len(s) + len(end)); err != nil {
		return nil, err
	}
	return s + end, nil
}

func filterWordCount(r *run, v Value, a args) (Value, error) {
	if _, err := a.bind("wordcount", 0); err != nil {
		return nil, err
	}
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	n := int64(0)
	for at := 0; at < len(s); {
		if size := nameSize(s[at:]); size > 0 {
			n++
			at += size
			continue
		}
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	return n, r.work(len(s))
}

func filterURLEncode(r *run, v Value, a args) (Value, error) {
	if _, err := a.bind("urlencode", 0); err != nil {
		return nil, err
	}
	var items []Value
	var err error
	switch v := v.(type) {
	case *dict:
		var l *list
		if l, err = r.pairs(v, kindList, ""); err == nil {
			items = l.items
		}
	case *list:
		items, err = r.iterate(v)
	default:
		s, err := r.str(v)
		if err != nil {
			return nil, err
		}
		return r.quoteURL(s, false)
	}
	if err != nil {
		return nil, err
	}
	out := &textBuilder{r: r}
	for i, item := range items {
		pair, err := r.iterate(item)
		if err != nil {
			return nil, err
		}
		if len(pair) != 2 {
			return nil, errors.New("urlencode needs pairs")
		}
		for j, x := range pair {
			s, err := r.str(x)
			if err != nil {
				return nil, err
			}
			if s, err = r.quoteURL(s, true); err != nil {
				return nil, err
			}
			sep := "="
			switch {
			case j == 0 && i == 0:
				sep = ""
			case j == 0:
				sep = "&"
			}
			if err := out.add(sep + s); err != nil {
				return nil, err
			}
		}
	}
	return out.sb.String(), nil
}

func (r *run) quoteURL(s string, query bool) (string, error) {
	if err := r.text(3 * len(s)); err != nil {
		return "", err
	}
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, len(s))
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9',
			strings.IndexByte("_.-~", c) >= 0, c == '/' && !query:
			out = append(out, c)
		case c == ' ' && query:
			out = append(out, '+')
		default:
			out = append(out, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(out), nil
}
