package jinja

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// stringToken reads a string literal.
func (l *lexer) stringToken() error {
	rest := l.rest()
	quote := rest[0]
	end := 1
	for end < len(rest) && rest[end] != quote {
		if rest[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(rest) {
		return l.errorf("a string is not closed")
	}
	value, err := unescape(rest[1:end])
	if err != "" {
		return l.errorf("%s", err)
	}
	l.emit(tokString, value)
	l.take(end + 1)
	return nil
}

// unescape replaces the escapes of a Python string literal. Jinja decodes
// them with Python's unicode-escape codec: unknown ones stay as they are.
func unescape(s string) (value, fault string) {
	if !strings.Contains(s, `\`) {
		return s, ""
	}
	var sb strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 >= len(s) {
			sb.WriteByte(s[i])
			continue
		}
		i++
		switch c := s[i]; c {
		case '\n': // a line break that is no part of the string
		case '\\', '\'', '"':
			sb.WriteByte(c)
		case 'a':
			sb.WriteByte('\a')
		case 'b':
			sb.WriteByte('\b')
		case 'f':
			sb.WriteByte('\f')
		case 'n':
			sb.WriteByte('\n')
		case 'r':
			sb.WriteByte('\r')
		case 't':
			sb.WriteByte('\t')
		case 'v':
			sb.WriteByte('\v')
		case 'x', 'u', 'U':
			size := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			if i+size >= len(s) {
				return "", "a string has a truncated \\" + string(c) + " escape"
			}
			v, err := strconv.ParseUint(s[i+1:i+1+size], 16, 32)
			if err != nil || !utf8.ValidRune(rune(v)) || v > utf8.MaxRune {
				return "", "a string has the escape \\" + s[i:i+1+size] + ", which is no character"
			}
			sb.WriteRune(rune(v))
			i += size
		case 'N':
			return "", "a string has an \\N escape, which is not supported"
		case '0', '1', '2', '3', '4', '5', '6', '7':
			v, n := rune(0), 0
			for n < 3 && i+n < len(s) && s[i+n] >= '0' && s[i+n] <= '7' {
				v = v*8 + rune(s[i+n]-'0')
				n++
			}
			sb.WriteRune(v)
			i += n - 1
		default:
			sb.WriteByte('\\')
			sb.WriteByte(c)
		}
	}
	return sb.String(), ""
}
