package jinja

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// texts makes a list of strings that share the bytes of one.
func (r *run) texts(parts []string) (*list, error) {
	if err := r.items(2 * len(parts)); err != nil {
		return nil, err
	}
	items := make([]Value, len(parts))
	for i, p := range parts {
		items[i] = p
	}
	return newList(items), nil
}

func splitMethod(name string, fromRight bool) stringMethod {
	return func(r *run, s string, a args) (Value, error) {
		b, err := a.bind(name, 0, "sep", "maxsplit")
		if err != nil {
			return nil, err
		}
		sep, given, err := b.strOrNone(0, "")
		if err != nil {
			return nil, err
		}
		limit, err := b.int(1, -1)
		if err != nil {
			return nil, err
		}
		if given && sep == "" {
			return nil, errors.New("empty separator")
		}
		n := int(min(limit, int64(len(s))))
		if err := r.alloc(16 * min(len(s), r.limits.Items)); err != nil {
			return nil, err
		}
		switch {
		case given && fromRight:
			return r.texts(splitRight(s, sep, n))
		case given && n < 0:
			return r.texts(strings.Split(s, sep))
		case given:
			return r.texts(strings.SplitN(s, sep, n+1))
		case fromRight:
			return r.texts(fieldsRight(s, n))
		}
		return r.texts(fieldsLeft(s, n))
	}
}

func splitRight(s, sep string, n int) []string {
	var parts []string
	for n != 0 {
		i := strings.LastIndex(s, sep)
		if i < 0 {
			break
		}
		parts = append(parts, s[i+len(sep):])
		s = s[:i]
		n--
	}
	parts = append(parts, s)
	slices.Reverse(parts)
	return parts
}

// fieldsLeft splits at runs of white space, at most n times if n >= 0.
func fieldsLeft(s string, n int) []string {
	var parts []string
	for s = strings.TrimLeftFunc(s, isSpace); s != ""; n-- {
		if n == 0 {
			return append(parts, s)
		}
		i := strings.IndexFunc(s, isSpace)
		if i < 0 {
			return append(parts, s)
		}
		parts = append(parts, s[:i])
		s = strings.TrimLeftFunc(s[i:], isSpace)
	}
	return parts
}

func fieldsRight(s string, n int) []string {
	var parts []string
	for s = strings.TrimRightFunc(s, isSpace); s != ""; n-- {
		if n == 0 {
			parts = append(parts, s)
			break
		}
		i := strings.LastIndexFunc(s, isSpace)
		if i < 0 {
			parts = append(parts, s)
			break
		}
		_, size := utf8.DecodeRuneInString(s[i:])
		parts = append(parts, s[i+size:])
		s = strings.TrimRightFunc(s[:i], isSpace)
	}
	slices.Reverse(parts)
	return parts
}

// splitLines is str.splitlines.
func splitLines(s string, keepEnds bool) []string {
	var lines []string
	for s != "" {
		i := strings.IndexFunc(s, func(c rune) bool {
			return c >= '\n' && c <= '\r' || c >= 0x1c && c <= 0x1e || c == 0x85 || c == 0x2028 || c == 0x2029
		})
		if i < 0 {
			return append(lines, s)
		}
		_, size := utf8.DecodeRuneInString(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			size = 2
		}
		end := i
		if keepEnds {
			end += size
		}
		lines = append(lines, s[:end])
		s = s[i+size:]
	}
	return lines
}

func splitLinesMethod(r *run, s string, a args) (Value, error) {
	b, err := a.bind("splitlines", 0, "keepends")
	if err != nil {
		return nil, err
	}
	if err := r.alloc(16 * min(len(s), r.limits.Items)); err != nil {
		return nil, err
	}
	return r.texts(splitLines(s, b.bool(0, false)))
}

func partitionMethod(name string, find func(s, sep string) int) stringMethod {
	return func(r *run, s string, a args) (Value, error) {
		b, err := a.bind(name, 1, "sep")
		if err != nil {
			return nil, err
		}
		sep, err := b.str(0, "")
		if err != nil {
			return nil, err
		}
		if sep == "" {
			return nil, errors.New("empty separator")
		}
		i := find(s, sep)
		switch {
		case i >= 0:
			return newTuple(s[:i], sep, s[i+len(sep):]), r.items(6)
		case name == "partition":
			return newTuple(s, "", ""), r.items(6)
		}
		return newTuple("", "", s), r.items(6)
	}
}

func joinMethod(r *run, sep string, a args) (Value, error) {
	b, err := a.bind("join", 1, "iterable")
	if err != nil {
		return nil, err
	}
	items, err := r.iterate(b.vals[0])
	if err != nil {
		return nil, err
	}
	if err := r.items(len(items)); err != nil {
		return nil, err
	}
	parts := make([]string, len(items))
	size := 0
	for i, item := range items {
		s, ok := item.(string)
		if !ok {
			return nil, fmt.Errorf("sequence item %d: expected str instance, %s found", i, typeName(item))
		}
		parts[i] = s
		size += len(s)
	}
	return r.joinText(parts, sep, size)
}

func zfillMethod(r *run, s string, a args) (Value, error) {
	b, err := a.bind("zfill", 1, "width")
	if err != nil {
		return nil, err
	}
	width, err := b.int(0, 0)
	if err != nil {
		return nil, err
	}
	n, err := r.runeCount(s)
	if err != nil || int64(n) >= width {
		return s, err
	}
	zeros, err := r.repeat("0", width-int64(n))
	if err != nil {
		return nil, err
	}
	if s != "" && (s[0] == '-' || s[0] == '+') {
		return s[:1] + zeros + s[1:], nil
	}
	return zeros + s, nil
}

// pad widens s to width characters, with fill on the left, right or both.
func (r *run) pad(s string, width int64, fill string, left, right bool) (string, error) {
	n, err := r.runeCount(s)
	if err != nil || width <= int64(n) {
		return s, err
	}
	extra := width - int64(n)
	before := extra
	switch {
	case left && right:
		// CPython's rule for the odd one.
		before = extra/2 + extra&width&1
	case right:
		before = 0
	}
	l, err := r.repeat(fill, before)
	if err != nil {
		return "", err
	}
	m, err := r.repeat(fill, extra-before)
	if err != nil {
		return "", err
	}
	if err := r.text(len(l) + len(s) + len(m)); err != nil {
		return "", err
	}
	return l + s + m, nil
}

func padMethod(name string, left, right bool) stringMethod {
	return func(r *run, s string, a args) (Value, error) {
		b, err := a.bind(name, 1, "width", "fillchar")
		if err != nil {
			return nil, err
		}
		width, err := b.int(0, 0)
		if err != nil {
			return nil, err
		}
		fill, err := b.str(1, " ")
		if err != nil {
			return nil, err
		}
		if utf8.RuneCountInString(fill) != 1 {
			return nil, errors.New("the fill character must be exactly one character long")
		}
		return r.pad(s, width, fill, left, right)
	}
}

// formatMethod is str.format with fields that have no conversion and no
// format: {}, {0} and {name}.
func formatMethod(r *run, s string, a args) (Value, error) {
	b := &textBuilder{r: r}
	auto := 0
	for s != "" {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			i = len(s)
		}
		if err := b.add(s[:i]); err != nil {
			return nil, err
		}
		if s = s[i:]; s == "" {
			break
		}
		if len(s) > 1 && s[1] == s[0] {
			if err := b.add(s[:1]); err != nil {
				return nil, err
			}
			s = s[2:]
			continue
		}
		end := strings.IndexByte(s, '}')
		if s[0] == '}' || end < 0 {
			return nil, errors.New("single brace in a format string")
		}
		field := s[1:end]
		s = s[end+1:]
		v, err := formatField(field, a, &auto)
		if err != nil {
			return nil, err
		}
		text, err := r.str(v)
		if err != nil {
			return nil, err
		}
		if err := b.add(text); err != nil {
			return nil, err
		}
	}
	return b.sb.String(), nil
}

func formatField(field string, a args, auto *int) (Value, error) {
	if strings.ContainsAny(field, ":!.[{") {
		return nil, fmt.Errorf("the format field {%s} is not supported", field[:min(len(field), 40)])
	}
	at := 0
	switch {
	case field == "":
		at = *auto
		*auto++
	case digits(field) == len(field) && len(field) < 6:
		for _, c := range field {
			at = at*10 + int(c-'0')
		}
	default:
		i := indexOf(a.names, field)
		if i < 0 {
			return nil, fmt.Errorf("format has no argument %q", field[:min(len(field), 40)])
		}
		return a.vals[i], nil
	}
	if at >= len(a.pos) {
		return nil, errors.New("replacement index out of range for positional args tuple")
	}
	return a.pos[at], nil
}
