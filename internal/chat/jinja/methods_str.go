package jinja

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

// stringMethods are the methods of str. The caller has counted the reading
// of s; results longer than s are counted here.
var stringMethods map[string]func(r *run, s string, a args) (Value, error)

func init() { // a literal would refer to itself through run
	stringMethods = map[string]func(r *run, s string, a args) (Value, error){
		"upper":      mapText(upperText),
		"lower":      mapText(strings.ToLower),
		"casefold":   mapText(strings.ToLower),
		"title":      mapText(titleText),
		"capitalize": mapText(capitalizeText),
		"swapcase":   mapText(swapCase),
		"strip":      stripMethod(true, true),
		"lstrip":     stripMethod(true, false),
		"rstrip":     stripMethod(false, true),

		"isupper":   testText(isUpper),
		"islower":   testText(isLower),
		"isdigit":   testText(allRunes(unicode.IsDigit)),
		"isdecimal": testText(allRunes(unicode.IsDigit)),
		"isnumeric": testText(allRunes(unicode.IsNumber)),
		"isalpha":   testText(allRunes(unicode.IsLetter)),
		"isalnum":   testText(allRunes(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) })),
		"isspace":   testText(allRunes(isSpace)),
		"isascii": testText(func(s string) bool {
			return strings.IndexFunc(s, func(c rune) bool { return c >= utf8.RuneSelf }) < 0
		}),

		"startswith":   affixMethod("startswith", strings.HasPrefix),
		"endswith":     affixMethod("endswith", strings.HasSuffix),
		"removeprefix": trimAffix("removeprefix", strings.TrimPrefix),
		"removesuffix": trimAffix("removesuffix", strings.TrimSuffix),
		"find":         findMethod("find", strings.Index, false),
		"rfind":        findMethod("rfind", strings.LastIndex, false),
		"index":        findMethod("index", strings.Index, true),
		"rindex":       findMethod("rindex", strings.LastIndex, true),

		"count":      countMethod,
		"replace":    replaceMethod,
		"split":      splitMethod("split", false),
		"rsplit":     splitMethod("rsplit", true),
		"splitlines": splitLinesMethod,
		"partition":  partitionMethod("partition", strings.Index),
		"rpartition": partitionMethod("rpartition", strings.LastIndex),
		"join":       joinMethod,
		"zfill":      zfillMethod,
		"center":     padMethod("center", true, true),
		"ljust":      padMethod("ljust", false, true),
		"rjust":      padMethod("rjust", true, false),
		"format":     formatMethod,
	}
}

type stringMethod = func(r *run, s string, a args) (Value, error)

func mapText(f func(string) string) stringMethod {
	return func(r *run, s string, a args) (Value, error) {
		if _, err := a.bind("str method", 0); err != nil {
			return nil, err
		}
		// Changing the case can lengthen a character to three of them.
		if err := r.alloc(3 * len(s)); err != nil {
			return nil, err
		}
		return f(s), nil
	}
}

func testText(f func(string) bool) stringMethod {
	return func(_ *run, s string, a args) (Value, error) {
		_, err := a.bind("str method", 0)
		return f(s), err
	}
}

func allRunes(f func(rune) bool) func(string) bool {
	return func(s string) bool {
		return s != "" && strings.IndexFunc(s, func(c rune) bool { return !f(c) }) < 0
	}
}

func isUpper(s string) bool {
	return strings.IndexFunc(s, unicode.IsUpper) >= 0 && strings.IndexFunc(s, unicode.IsLower) < 0
}

func isLower(s string) bool {
	return strings.IndexFunc(s, unicode.IsLower) >= 0 && strings.IndexFunc(s, unicode.IsUpper) < 0
}

func isCased(c rune) bool { return unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c) }

// titleText is str.title: the first of each run of cased letters in title case.
func titleText(s string) string {
	inWord := false
	return strings.Map(func(c rune) rune {
		was := inWord
		inWord = isCased(c)
		if was {
			return unicode.ToLower(c)
		}
		return unicode.ToTitle(c)
	}, s)
}

func capitalizeText(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return strings.ToTitle(s[:n]) + strings.ToLower(s[n:])
}

// longUpper are letters in use whose upper case has several letters, which
// Go's unicode package does not know (Unicode's SpecialCasing.txt).
var longUpper = strings.NewReplacer("ß", "SS", "ŉ", "ʼN", "ǰ", "J̌", "ﬀ", "FF", "ﬁ", "FI", "ﬂ", "FL", "ﬃ", "FFI", "ﬄ", "FFL", "ﬅ", "ST", "ﬆ", "ST")

func upperText(s string) string { return longUpper.Replace(strings.ToUpper(s)) }

func swapCase(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsUpper(c) {
			return unicode.ToLower(c)
		}
		return unicode.ToUpper(c)
	}, s)
}

// stripText takes white space, or the characters chars, off the ends.
func (r *run) stripText(s string, chars string, given, left, right bool) (string, error) {
	cut := isSpace
	if given {
		// One look at each of the characters for each that is stripped.
		if err := r.step(int64(len(s)) * int64(1+len(chars)) / 64); err != nil {
			return "", err
		}
		cut = func(c rune) bool { return strings.ContainsRune(chars, c) }
	}
	if left {
		s = strings.TrimLeftFunc(s, cut)
	}
	if right {
		s = strings.TrimRightFunc(s, cut)
	}
	return s, nil
}

func stripMethod(left, right bool) stringMethod {
	return func(r *run, s string, a args) (Value, error) {
		b, err := a.bind("strip", 0, "chars")
		if err != nil {
			return nil, err
		}
		chars, given, err := b.strOrNone(0, "")
		if err != nil {
			return nil, err
		}
		return r.stripText(s, chars, given, left, right)
	}
}

// window applies the optional start and end of find, count, startswith.
func (r *run) window(s string, b bound, first int) (string, int, error) {
	if !b.has(first) && !b.has(first+1) {
		return s, 0, nil
	}
	var bounds [2]*int64
	for i := range bounds {
		if v := b.value(first+i, nil); v != nil {
			n, ok := asInt(v)
			if !ok {
				return "", 0, b.wrong(first+i, "int")
			}
			bounds[i] = &n
		}
	}
	n, err := r.runeCount(s)
	if err != nil {
		return "", 0, err
	}
	from, to := sliceBounds(bounds[0], bounds[1], 1, int64(n))
	if from > to {
		return "", -1, nil
	}
	return s[runeOffset(s, int(from)):runeOffset(s, int(to))], int(from), nil
}

func affixMethod(name string, has func(s, affix string) bool) stringMethod {
	return func(r *run, s string, a args) (Value, error) {
		b, err := a.bind(name, 1, "prefix", "start", "end")
		if err != nil {
			return nil, err
		}
		part, from, err := r.window(s, b, 1)
		if err != nil {
			return nil, err
		}
		options := []Value{b.vals[0]}
		if l, ok := b.vals[0].(*list); ok && l.kind == kindTuple {
			options = l.items
		}
		for _, o := range options {
			affix, ok := o.(string)
			if !ok {
				return nil, b.wrong(0, "str or a tuple of str")
			}
			if err := r.work(len(affix)); err != nil {
				return nil, err
			}
			if from >= 0 && has(part, affix) {
				return true, nil
			}
		}
		return false, nil
	}
}

func trimAffix(name string, trim func(s, affix string) string) stringMethod {
	return func(_ *run, s string, a args) (Value, error) {
		b, err := a.bind(name, 1, "affix")
		if err != nil {
			return nil, err
		}
		affix, err := b.str(0, "")
		return trim(s, affix), err
	}
}

func findMethod(name string, find func(s, sub string) int, must bool) stringMethod {
	return func(r *run, s string, a args) (Value, error) {
		b, err := a.bind(name, 1, "sub", "start", "end")
		if err != nil {
			return nil, err
		}
		sub, err := b.str(0, "")
		if err != nil {
			return nil, err
		}
		part, from, err := r.window(s, b, 1)
		if err != nil {
			return nil, err
		}
		at := -1
		if from >= 0 {
			if at = find(part, sub); at >= 0 {
				at = from + utf8.RuneCountInString(part[:at])
			}
		}
		if at < 0 && must {
			return nil, errors.New("substring not found")
		}
		return int64(at), nil
	}
}

func countMethod(r *run, s string, a args) (Value, error) {
	b, err := a.bind("count", 1, "sub", "start", "end")
	if err != nil {
		return nil, err
	}
	sub, err := b.str(0, "")
	if err != nil {
		return nil, err
	}
	part, from, err := r.window(s, b, 1)
	if err != nil || from < 0 {
		return int64(0), err
	}
	return int64(strings.Count(part, sub)), nil
}

// replaceText is s.replace(old, to, count); a negative count is all.
func (r *run) replaceText(s, old, to string, count int64) (Value, error) {
	n := int64(strings.Count(s, old))
	if count >= 0 {
		n = min(n, count)
	}
	if err := r.work(len(s) + len(old)); err != nil {
		return nil, err
	}
	grown := int64(len(s)) + n*(int64(len(to))-int64(len(old)))
	if grown > int64(r.limits.Text) {
		return nil, r.text(r.limits.Text + 1)
	}
	if err := r.text(int(grown)); err != nil {
		return nil, err
	}
	return strings.Replace(s, old, to, int(n)), nil
}

func replaceMethod(r *run, s string, a args) (Value, error) {
	b, err := a.bind("replace", 2, "old", "new", "count")
	if err != nil {
		return nil, err
	}
	old, err := b.str(0, "")
	if err != nil {
		return nil, err
	}
	to, err := b.str(1, "")
	if err != nil {
		return nil, err
	}
	count, err := b.int(2, -1)
	if err != nil {
		return nil, err
	}
	return r.replaceText(s, old, to, count)
}
