package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// tokenKind is the kind of a token. Operators and names are told apart by text.
type tokenKind uint8

const (
	tokEOF           tokenKind = iota
	tokData                    // text outside tags
	tokBlockBegin              // {%
	tokBlockEnd                // %}
	tokVariableBegin           // {{
	tokVariableEnd             // }}
	tokName
	tokString // text is the value
	tokInt
	tokFloat
	tokOp
)

type token struct {
	kind tokenKind
	text string
	line int
}

func (t token) String() string {
	switch t.kind {
	case tokEOF:
		return "end of template"
	case tokData:
		return "template data"
	case tokBlockBegin, tokBlockEnd, tokVariableBegin, tokVariableEnd:
		return "tag mark " + t.text
	}
	return strconv.Quote(t.text)
}

// lexer cuts a template into tokens as jinja2.lexer.Lexer.tokeniter does
// with trim_blocks and lstrip_blocks on: white space is taken off the text
// here, so nothing later needs to know of it.
type lexer struct {
	src    string
	pos    int
	line   int
	tokens []token
	// lineStarting is set where the text before pos ends with a newline.
	lineStarting bool
}

// lex returns the tokens of source. Newlines become \n, and one at the end
// of the source is dropped, as in Jinja.
func lex(source string) ([]token, error) {
	source = strings.ReplaceAll(source, "\r\n", "\n")
	source = strings.ReplaceAll(source, "\r", "\n")
	source = strings.TrimSuffix(source, "\n")
	l := &lexer{src: source, line: 1, lineStarting: true}
	for l.pos < len(l.src) {
		if err := l.root(); err != nil {
			return nil, err
		}
	}
	l.emit(tokEOF, "")
	return l.tokens, nil
}

func (l *lexer) emit(kind tokenKind, text string) {
	l.tokens = append(l.tokens, token{kind, text, l.line})
}

func (l *lexer) errorf(format string, args ...any) error {
	return fmt.Errorf("line %d: %s", l.line, fmt.Sprintf(format, args...))
}

// take moves over n bytes.
func (l *lexer) take(n int) {
	l.line += strings.Count(l.src[l.pos:l.pos+n], "\n")
	l.pos += n
	if n > 0 {
		l.lineStarting = l.src[l.pos-1] == '\n'
	}
}

func (l *lexer) rest() string { return l.src[l.pos:] }

// root reads the text up to the next tag, and the tag.
func (l *lexer) root() error {
	rest := l.rest()
	at := 0
	for {
		i := strings.IndexByte(rest[at:], '{')
		if i < 0 || at+i+1 >= len(rest) {
			l.data(rest)
			l.take(len(rest))
			return nil
		}
		at += i
		if c := rest[at+1]; c == '{' || c == '%' || c == '#' {
			break
		}
		at++
	}
	text, kind := rest[:at], rest[at+1]
	rawSize := 0
	if kind == '%' {
		rawSize = rawBegin(rest[at:])
	}
	sign := byte(0)
	if len(rest) > at+2 && (rest[at+2] == '-' || rest[at+2] == '+') {
		sign = rest[at+2]
	}
	l.data(l.lstrip(text, sign, kind != '{'))
	l.take(at)
	if rawSize > 0 {
		return l.raw(rawSize)
	}
	size := 2
	if sign != 0 {
		size = 3
	}
	switch kind {
	case '#':
		l.take(size)
		return l.comment()
	case '{':
		l.emit(tokVariableBegin, "{{")
		l.take(size)
		return l.expression(false)
	}
	l.emit(tokBlockBegin, "{%")
	l.take(size)
	return l.expression(true)
}

// lstrip takes off the end of the text before a tag what the tag's sign and
// lstrip_blocks (block) ask for.
func (l *lexer) lstrip(text string, sign byte, block bool) string {
	if sign == '-' {
		return strings.TrimRightFunc(text, isSpace)
	}
	if sign == '+' || !block {
		return text
	}
	start := strings.LastIndexByte(text, '\n') + 1
	if start == 0 && !l.lineStarting {
		return text
	}
	if strings.TrimFunc(text[start:], isSpace) == "" {
		return text[:start]
	}
	return text
}

func (l *lexer) data(text string) {
	if text != "" {
		l.emit(tokData, text)
	}
}

// spaces returns how many bytes of white space s starts with.
func spaces(s string) int { return len(s) - len(strings.TrimLeftFunc(s, isSpace)) }

// isSpace is Python's str.isspace, and \s of its regular expressions.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// rawBegin returns the length of a {% raw %} tag at the start of s, or 0.
func rawBegin(s string) int {
	i := 2
	if i < len(s) && (s[i] == '-' || s[i] == '+') {
		i++
	}
	i += spaces(s[i:])
	if !strings.HasPrefix(s[i:], "raw") {
		return 0
	}
	i += len("raw")
	i += spaces(s[i:])
	switch {
	case strings.HasPrefix(s[i:], "-%}"):
		i += len("-%}")
		return i + spaces(s[i:])
	case strings.HasPrefix(s[i:], "%}"):
		return i + len("%}")
	}
	return 0
}

// endTag returns the length of the end of a tag at the start of s, with the
// white space that goes with it, or 0: "-%}" takes all, "%}" one newline,
// "+%}" none. mark is "%}" or "#}".
func endTag(s, mark string) int {
	switch {
	case strings.HasPrefix(s, "+"+mark):
		return 1 + len(mark)
	case strings.HasPrefix(s, "-"+mark):
		n := 1 + len(mark)
		return n + spaces(s[n:])
	case strings.HasPrefix(s, mark+"\n"):
		return len(mark) + 1
	case strings.HasPrefix(s, mark):
		return len(mark)
	}
	return 0
}

func (l *lexer) raw(size int) error {
	l.take(size)
	rest := l.rest()
	for at := 0; ; at += 2 {
		i := strings.Index(rest[at:], "{%")
		if i < 0 {
			return l.errorf("missing end of raw directive")
		}
		at += i
		end, sign := at+2, byte(0)
		if end < len(rest) && (rest[end] == '-' || rest[end] == '+') {
			sign = rest[end]
			end++
		}
		end += spaces(rest[end:])
		if !strings.HasPrefix(rest[end:], "endraw") {
			continue
		}
		end += len("endraw")
		end += spaces(rest[end:])
		n := endTag(rest[end:], "%}")
		if n == 0 {
			continue
		}
		l.data(l.lstrip(rest[:at], sign, true))
		l.take(end + n)
		return nil
	}
}

func (l *lexer) comment() error {
	rest := l.rest()
	i := strings.Index(rest, "#}")
	if i < 0 {
		return l.errorf("missing end of comment tag")
	}
	if i > 0 && (rest[i-1] == '-' || rest[i-1] == '+') {
		i--
	}
	l.take(i + endTag(rest[i:], "#}"))
	return nil
}

// operators, the longest first.
var operators = [...]string{
	"**", "//", "==", "!=", ">=", "<=",
	"+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";",
}

// expression reads the inside of a tag and its end.
func (l *lexer) expression(block bool) error {
	var open []byte // brackets that wait for their end
	for l.pos < len(l.src) {
		rest := l.rest()
		if n := spaces(rest); n > 0 {
			l.take(n)
			continue
		}
		if len(open) == 0 {
			if block {
				if n := endTag(rest, "%}"); n > 0 {
					l.emit(tokBlockEnd, "%}")
					l.take(n)
					return nil
				}
			} else if n := variableEnd(rest); n > 0 {
				l.emit(tokVariableEnd, "}}")
				l.take(n)
				return nil
			}
		}
		c := rest[0]
		var err error
		switch {
		case c == '"' || c == '\'':
			err = l.stringToken()
		case c >= '0' && c <= '9':
			l.number()
		case c == '_' || isNameRune(rest):
			n := nameSize(rest)
			l.emit(tokName, rest[:n])
			l.take(n)
		default:
			open, err = l.operator(open)
		}
		if err != nil {
			return err
		}
	}
	return l.errorf("a tag is not closed")
}

func variableEnd(s string) int {
	if strings.HasPrefix(s, "-}}") {
		return 3 + spaces(s[3:])
	}
	if strings.HasPrefix(s, "}}") {
		return 2
	}
	return 0
}

func isNameRune(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return unicode.IsLetter(r)
}

func nameSize(s string) int {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) {
			return i
		}
	}
	return len(s)
}

func (l *lexer) operator(open []byte) ([]byte, error) {
	rest := l.rest()
	for _, op := range operators {
		if !strings.HasPrefix(rest, op) {
			continue
		}
		switch op {
		case "(":
			open = append(open, ')')
		case "[":
			open = append(open, ']')
		case "{":
			open = append(open, '}')
		case ")", "]", "}":
			if len(open) == 0 || open[len(open)-1] != op[0] {
				return open, l.errorf("unexpected %q", op)
			}
			open = open[:len(open)-1]
		}
		if len(open) > maxNesting {
			return open, l.errorf("brackets are nested more than %d deep", maxNesting)
		}
		l.emit(tokOp, op)
		l.take(len(op))
		return open, nil
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return open, l.errorf("unexpected character %q", r)
}

// digits returns how many bytes of decimal digits with single underscores
// between them s starts with.
func digits(s string) int {
	n := 0
	for n < len(s) && (s[n] >= '0' && s[n] <= '9' || n > 0 && s[n] == '_' && s[n-1] != '_' && n+1 < len(s) && s[n+1] >= '0' && s[n+1] <= '9') {
		n++
	}
	return n
}

func (l *lexer) number() {
	rest := l.rest()
	kind := tokInt
	var n int
	if len(rest) > 2 && rest[0] == '0' && strings.ContainsRune("bBoOxX", rune(rest[1])) {
		n = 2
		for n < len(rest) && (rest[n] == '_' || isHex(rest[n])) {
			n++
		}
	} else {
		n = digits(rest)
		// In {{ a.0.1 }} the numbers are two subscripts.
		afterDot := l.pos > 0 && l.src[l.pos-1] == '.'
		if !afterDot && n+1 < len(rest) && rest[n] == '.' {
			if m := digits(rest[n+1:]); m > 0 {
				n += 1 + m
				kind = tokFloat
			}
		}
		if !afterDot && n < len(rest) && (rest[n] == 'e' || rest[n] == 'E') {
			m := n + 1
			if m < len(rest) && (rest[m] == '+' || rest[m] == '-') {
				m++
			}
			if d := digits(rest[m:]); d > 0 {
				n, kind = m+d, tokFloat
			}
		}
	}
	l.emit(kind, strings.ReplaceAll(rest[:n], "_", ""))
	l.take(n)
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
