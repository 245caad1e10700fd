package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// reader walks a body. It keeps the first fault and lets later reads pass, so that the code that lists the fields has no
// error handling of its own.
type reader struct {
	err     *StatusError
	ignored map[string]bool
}

// object is a JSON object whose fields are taken one by one; those that nobody took are reported as ignored.
type object struct {
	r      *reader
	path   string // "messages[3]." in front of a field's name in errors
	kind   string // "messages[]." in front of a field's name in the list of ignored ones
	fields map[string]json.RawMessage
}

// readBody decodes a whole body. Duplicate fields are allowed and the last one counts, as in encoding/json; nesting is
// bounded there too (10,000 levels).
func readBody(body []byte) (*object, error) {
	if !utf8.Valid(body) {
		i := 0
		for i < len(body) {
			c, n := utf8.DecodeRune(body[i:])
			if c == utf8.RuneError && n == 1 {
				break
			}
			i += n
		}
		return nil, NewError(400, CodeInvalidUTF8, "", fmt.Sprintf("the body is not valid UTF-8: byte 0x%02x at offset %d", body[i], i))
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, NewError(400, CodeInvalidJSON, "", "the body is empty; a JSON object is expected")
	}
	var raw json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil {
		msg := err.Error()
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			msg = fmt.Sprintf("%s at offset %d", msg, syntax.Offset)
		}
		return nil, NewError(400, CodeInvalidJSON, "", "the body is not valid JSON: "+msg)
	}
	r := &reader{ignored: map[string]bool{}}
	if o := r.object("", "", raw); o != nil {
		return o, nil
	}
	return nil, NewError(400, CodeInvalidType, "", fmt.Sprintf("the body must be a JSON object, but is %s", found(raw)))
}

// fail keeps the first fault.
func (r *reader) fail(code, param, format string, args ...any) {
	if r.err == nil {
		r.err = NewError(400, code, param, fmt.Sprintf(format, args...))
	}
}

func (r *reader) failType(param, want string, raw json.RawMessage) {
	r.fail(CodeInvalidType, param, "'%s' must be %s, but %s was given", param, want, found(raw))
}

// object reads raw, which is valid JSON, as an object; nil when it is something else.
func (r *reader) object(path, kind string, raw json.RawMessage) *object {
	o := &object{r: r, path: path, kind: kind}
	if kindOf(raw) != '{' || json.Unmarshal(raw, &o.fields) != nil {
		return nil
	}
	return o
}

// array reads raw, which is valid JSON, as an array.
func array(raw json.RawMessage) (elems []json.RawMessage, ok bool) {
	if kindOf(raw) != '[' || json.Unmarshal(raw, &elems) != nil {
		return nil, false
	}
	return elems, true
}

// kindOf says what a valid JSON value is by its first byte: one of { [ " t n 0.
func kindOf(raw json.RawMessage) byte {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	switch c := raw[0]; c {
	case '{', '[', '"', 'n':
		return c
	case 't', 'f':
		return 't'
	}
	return '0'
}

// found describes a value in an error. Strings and what may hold them are not repeated: they may be somebody's words.
func found(raw json.RawMessage) string {
	switch kindOf(raw) {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 'n':
		return "null"
	}
	s := string(bytes.TrimSpace(raw))
	if len(s) > maxFoundInMessage {
		s = s[:maxFoundInMessage] + "..."
	}
	return s
}

// take removes a field; ok is false when it is not there or null, which mean the same in this API.
func (o *object) take(name string) (raw json.RawMessage, ok bool) {
	raw, ok = o.fields[name]
	delete(o.fields, name)
	return raw, ok && kindOf(raw) != 'n'
}

// done reports what nobody took.
func (o *object) done() {
	for name, raw := range o.fields {
		if kindOf(raw) != 'n' {
			o.r.ignored[o.kind+name] = true
		}
	}
}

func (r *reader) ignoredNames() []string {
	names := make([]string, 0, len(r.ignored))
	for name := range r.ignored {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (o *object) boolean(name string) *bool {
	raw, ok := o.take(name)
	if !ok {
		return nil
	}
	if kindOf(raw) != 't' {
		o.r.failType(o.path+name, "true or false", raw)
		return nil
	}
	v := bytes.TrimSpace(raw)[0] == 't'
	return &v
}

// flag is boolean with the default false.
func (o *object) flag(name string) bool {
	v := o.boolean(name)
	return v != nil && *v
}

func (o *object) str(name string) *string {
	raw, ok := o.take(name)
	if !ok {
		return nil
	}
	s, ok := stringOf(raw)
	if !ok {
		o.r.failType(o.path+name, "a string", raw)
		return nil
	}
	return &s
}

func stringOf(raw json.RawMessage) (s string, ok bool) {
	return s, kindOf(raw) == '"' && json.Unmarshal(raw, &s) == nil
}

// number reads a number for which ok holds; want says in words which those are.
func (o *object) number(name, want string, ok func(float64) bool) *float64 {
	raw, there := o.take(name)
	if !there {
		return nil
	}
	if kindOf(raw) != '0' {
		o.r.failType(o.path+name, "a number", raw)
		return nil
	}
	// A number too large for a float64 is infinite here and out of every range.
	v, err := strconv.ParseFloat(string(bytes.TrimSpace(raw)), 64)
	if err != nil || !ok(v) {
		o.r.fail(CodeInvalidValue, o.path+name, "'%s' must be %s, but is %s", o.path+name, want, found(raw))
		return nil
	}
	return &v
}

// integer reads an integer from lo to hi. 16.0 and 1e2 are integers too.
func (o *object) integer(name string, lo, hi int64) *int64 {
	raw, there := o.take(name)
	if !there {
		return nil
	}
	return o.r.integer(o.path+name, raw, lo, hi)
}

// count is integer for what is an int in Go.
func (o *object) count(name string, lo, hi int) *int {
	v := o.integer(name, int64(lo), int64(hi))
	if v == nil {
		return nil
	}
	n := int(*v)
	return &n
}

func (r *reader) integer(param string, raw json.RawMessage, lo, hi int64) *int64 {
	if kindOf(raw) != '0' {
		r.failType(param, "an integer", raw)
		return nil
	}
	text := string(bytes.TrimSpace(raw))
	v, err := strconv.ParseInt(text, 10, 64)
	if errors.Is(err, strconv.ErrSyntax) {
		const exact = 1 << 53
		f, _ := strconv.ParseFloat(text, 64)
		if f != math.Trunc(f) {
			r.fail(CodeInvalidType, param, "'%s' must be an integer, but is %s", param, found(raw))
			return nil
		}
		if math.Abs(f) <= exact {
			v, err = int64(f), nil
		}
	}
	if err != nil || v < lo || v > hi {
		switch {
		case hi >= math.MaxInt32 && lo > math.MinInt64 && v < lo && err == nil:
			r.fail(CodeInvalidValue, param, "'%s' must be at least %d, but is %s", param, lo, found(raw))
		default:
			r.fail(CodeInvalidValue, param, "'%s' must be from %d to %d, but is %s", param, lo, hi, found(raw))
		}
		return nil
	}
	return &v
}

// refuse fails for a field that the API has and Pagelight has not, unless it holds the value that asks for nothing.
func (o *object) refuse(name, neutral string) {
	raw, ok := o.take(name)
	if !ok || neutral != "" && sameJSON(raw, neutral) {
		return
	}
	msg := fmt.Sprintf("'%s' is not supported yet", o.path+name)
	if neutral != "" {
		msg += fmt.Sprintf(": only %s is accepted, but %s was given", neutral, found(raw))
	}
	o.r.fail(CodeUnsupported, o.path+name, "%s", msg)
}

// refusePrefix refuses every field whose name begins so, in the order of their names.
func (o *object) refusePrefix(prefix string) {
	var names []string
	for name := range o.fields {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		o.refuse(name, "")
	}
}

// sameJSON compares a value with a small one: numbers by value, the rest by their text without white space.
func sameJSON(raw json.RawMessage, want string) bool {
	if kindOf(raw) == '0' && kindOf(json.RawMessage(want)) == '0' {
		a, errA := strconv.ParseFloat(string(bytes.TrimSpace(raw)), 64)
		b, errB := strconv.ParseFloat(want, 64)
		return errA == nil && errB == nil && a == b
	}
	const small = 256
	if len(raw) > small {
		return false
	}
	var b bytes.Buffer
	return json.Compact(&b, raw) == nil && b.String() == want
}
