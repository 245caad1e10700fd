package jinja

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// percentSpec is one %-conversion of a format string.
type percentSpec struct {
	key                             string
	hasKey                          bool
	minus, plus, space, zero, alter bool
	width                           int64
	precision                       int64 // -1: none
	verb                            byte
}

// percent is Python's s % arg.
func (r *run) percent(s string, arg Value) (Value, error) {
	if u, ok := arg.(*undefined); ok {
		return nil, u.err()
	}
	values := []Value{arg}
	mapping, isMapping := arg.(*dict)
	if l, ok := arg.(*list); ok && l.kind == kindTuple {
		values = l.items
	}
	used := 0
	next := func() (Value, error) {
		if used >= len(values) {
			return nil, errors.New("not enough arguments for format string")
		}
		used++
		return values[used-1], nil
	}
	out := &textBuilder{r: r}
	if err := r.work(len(s)); err != nil {
		return nil, err
	}
	for s != "" {
		i := strings.IndexByte(s, '%')
		if i < 0 {
			i = len(s)
		}
		if err := out.add(s[:i]); err != nil {
			return nil, err
		}
		if s = s[i:]; s == "" {
			break
		}
		spec, size, err := parsePercent(s, next)
		if err != nil {
			return nil, err
		}
		s = s[size:]
		if spec.verb == '%' {
			if err := out.add("%"); err != nil {
				return nil, err
			}
			continue
		}
		var v Value
		if spec.hasKey {
			if !isMapping {
				return nil, errors.New("format requires a mapping")
			}
			var ok bool
			if v, ok = mapping.getString(spec.key); !ok {
				return nil, fmt.Errorf("the format string names the key %q, which is missing", spec.key[:min(len(spec.key), 40)])
			}
		} else if v, err = next(); err != nil {
			return nil, err
		}
		text, err := r.percentValue(spec, v)
		if err != nil {
			return nil, err
		}
		if err := out.add(text); err != nil {
			return nil, err
		}
	}
	if used < len(values) && !isMapping {
		return nil, errors.New("not all arguments converted during string formatting")
	}
	return out.sb.String(), nil
}

// parsePercent reads the conversion at the start of s. next gives the value
// of a width or precision "*".
func parsePercent(s string, next func() (Value, error)) (spec percentSpec, size int, err error) {
	spec.precision = -1
	i := 1
	if i < len(s) && s[i] == '(' {
		end := strings.IndexByte(s, ')')
		if end < 0 {
			return spec, 0, errors.New("incomplete format key")
		}
		spec.key, spec.hasKey = s[2:end], true
		i = end + 1
	}
flags:
	for ; i < len(s); i++ {
		switch s[i] {
		case '-':
			spec.minus = true
		case '+':
			spec.plus = true
		case ' ':
			spec.space = true
		case '0':
			spec.zero = true
		case '#':
			spec.alter = true
		default:
			break flags
		}
	}
	number := func() (int64, error) {
		if i < len(s) && s[i] == '*' {
			i++
			v, err := next()
			if err != nil {
				return 0, err
			}
			n, ok := asInt(v)
			if !ok {
				return 0, errors.New("* wants int")
			}
			return n, nil
		}
		n := int64(0)
		for ; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
			if n = n*10 + int64(s[i]-'0'); n > math.MaxInt32 {
				return 0, errors.New("width or precision is too big")
			}
		}
		return n, nil
	}
	if spec.width, err = number(); err != nil {
		return spec, 0, err
	}
	if spec.width < 0 {
		spec.minus, spec.width = true, -spec.width
	}
	if i < len(s) && s[i] == '.' {
		i++
		if spec.precision, err = number(); err != nil {
			return spec, 0, err
		}
		spec.precision = max(spec.precision, 0)
	}
	for i < len(s) && strings.IndexByte("hlL", s[i]) >= 0 {
		i++
	}
	if i >= len(s) {
		return spec, 0, errors.New("incomplete format")
	}
	spec.verb = s[i]
	return spec, i + 1, nil
}

func (r *run) percentValue(spec percentSpec, v Value) (string, error) {
	switch spec.verb {
	case 's', 'r', 'a':
		text, err := r.str(v)
		if spec.verb != 's' {
			text, err = r.repr(v)
		}
		if err != nil {
			return "", err
		}
		if spec.precision >= 0 {
			n, err := r.runeCount(text)
			if err != nil {
				return "", err
			}
			if spec.precision < int64(n) {
				text = text[:runeOffset(text, int(spec.precision))]
			}
		}
		return r.pad(text, spec.width, " ", !spec.minus, spec.minus)
	case 'c':
		if n, ok := asInt(v); ok && n >= 0 && n <= 0x10ffff {
			v = string(rune(n))
		}
		s, ok := v.(string)
		if n, _ := r.runeCount(s); !ok || n != 1 {
			return "", errors.New("%c requires int or char")
		}
		return r.pad(s, spec.width, " ", !spec.minus, spec.minus)
	case 'd', 'i', 'u', 'x', 'X', 'o':
		return r.percentInt(spec, v)
	case 'f', 'F', 'e', 'E', 'g', 'G':
		return r.percentFloat(spec, v)
	}
	return "", fmt.Errorf("unsupported format character %q", spec.verb)
}

func (r *run) percentInt(spec percentSpec, v Value) (string, error) {
	n, ok := asInt(v)
	if f, isFloat := v.(float64); isFloat && strings.IndexByte("diu", spec.verb) >= 0 && math.Abs(f) < 1<<63 {
		n, ok = int64(f), true
	}
	if !ok {
		return "", fmt.Errorf("%%%c format: an integer is required, not %s", spec.verb, typeName(v))
	}
	base, prefix := 10, ""
	switch spec.verb {
	case 'x', 'X':
		base, prefix = 16, "0"+string(spec.verb)
	case 'o':
		base, prefix = 8, "0o"
	}
	if !spec.alter {
		prefix = ""
	}
	digits := strconv.FormatInt(n, base)
	if spec.verb == 'X' {
		digits = strings.ToUpper(digits)
	}
	digits = strings.TrimPrefix(digits, "-")
	if missing := spec.precision - int64(len(digits)); missing > 0 {
		zeros, err := r.repeat("0", missing)
		if err != nil {
			return "", err
		}
		digits = zeros + digits
	}
	return r.padNumber(spec, n < 0, prefix, digits)
}

func (r *run) percentFloat(spec percentSpec, v Value) (string, error) {
	f, ok := asFloat(v)
	if !ok {
		return "", fmt.Errorf("must be real number, not %s", typeName(v))
	}
	precision := spec.precision
	if precision < 0 {
		precision = 6
	}
	if precision > 1000 {
		return "", limitf("a float format has a precision above 1000")
	}
	var digits string
	switch verb := spec.verb | 0x20; {
	case math.IsInf(f, 0):
		digits, spec.zero = "inf", false
	case math.IsNaN(f):
		digits, spec.zero = "nan", false
	case verb == 'g':
		digits = formatG(math.Abs(f), int(max(precision, 1)), spec.alter)
	default:
		digits = strconv.FormatFloat(math.Abs(f), verb, int(precision), 64)
		if spec.alter && precision == 0 && verb == 'f' {
			digits += "."
		}
	}
	if spec.verb < 'a' {
		digits = strings.ToUpper(digits)
	}
	return r.padNumber(spec, math.Signbit(f) && !math.IsNaN(f), "", digits)
}

// formatG is C's %g: the shorter of %e and %f without trailing zeros.
func formatG(f float64, precision int, keepZeros bool) string {
	e := strconv.FormatFloat(f, 'e', precision-1, 64)
	mantissa, expText, _ := strings.Cut(e, "e")
	exp, _ := strconv.Atoi(expText)
	tail := "e" + expText
	if exp >= -4 && exp < precision {
		mantissa, tail = strconv.FormatFloat(f, 'f', precision-1-exp, 64), ""
	}
	if !keepZeros && strings.Contains(mantissa, ".") {
		mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
	}
	return mantissa + tail
}

// padNumber puts sign, prefix and zeros before digits, and pads to the width.
func (r *run) padNumber(spec percentSpec, negative bool, prefix, digits string) (string, error) {
	sign := ""
	switch {
	case negative:
		sign = "-"
	case spec.plus:
		sign = "+"
	case spec.space:
		sign = " "
	}
	sign += prefix
	if missing := spec.width - int64(len(sign)+len(digits)); spec.zero && !spec.minus && missing > 0 {
		zeros, err := r.repeat("0", missing)
		if err != nil {
			return "", err
		}
		digits = zeros + digits
	}
	return r.pad(sign+digits, spec.width, " ", !spec.minus, spec.minus)
}
