package jinja

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// filterFunc computes v|name(a).
type filterFunc func(r *run, v Value, a args) (Value, error)

var filters map[string]filterFunc

func init() { // a literal would refer to itself through map and select
	filters = map[string]filterFunc{
		"abs":         filterAbs,
		"attr":        filterAttr,
		"batch":       filterBatch,
		"capitalize":  textFilter(capitalizeText),
		"center":      filterCenter,
		"count":       filterLength,
		"d":           filterDefault,
		"default":     filterDefault,
		"dictsort":    filterDictSort,
		"e":           textFilter(escapeHTML),
		"escape":      textFilter(escapeHTML),
		"first":       filterFirst,
		"float":       filterFloat,
		"forceescape": textFilter(escapeHTML),
		"format":      filterFormat,
		"groupby":     filterGroupBy,
		"indent":      filterIndent,
		"int":         filterInt,
		"items":       filterItems,
		"join":        filterJoin,
		"last":        filterLast,
		"length":      filterLength,
		"list":        filterList,
		"lower":       textFilter(strings.ToLower),
		"map":         filterMap,
		"max":         filterMinMax("max", 1),
		"min":         filterMinMax("min", -1),
		"reject":      filterSelect("reject", false, false),
		"rejectattr":  filterSelect("rejectattr", true, false),
		"replace":     filterReplace,
		"reverse":     filterReverse,
		"round":       filterRound,
		"safe":        textFilter(func(s string) string { return s }),
		"select":      filterSelect("select", false, true),
		"selectattr":  filterSelect("selectattr", true, true),
		"slice":       filterSlice,
		"sort":        filterSort,
		"string":      textFilter(func(s string) string { return s }),
		"sum":         filterSum,
		"title":       textFilter(titleFilter),
		"tojson":      filterToJSON,
		"trim":        filterTrim,
		"truncate":    filterTruncate,
		"unique":      filterUnique,
		"upper":       textFilter(upperText),
		"urlencode":   filterURLEncode,
		"wordcount":   filterWordCount,
	}
}

// unsupportedFilters are those of jinja2 that no chat template needs.
var unsupportedFilters = map[string]bool{
	"filesizeformat": true, "pprint": true, "random": true, "striptags": true,
	"urlize": true, "wordwrap": true, "xmlattr": true,
}

// filter applies a filter by its name.
func (r *run) filter(name string, v Value, a args) (Value, error) {
	f, ok := filters[name]
	if !ok {
		if unsupportedFilters[name] {
			return nil, fmt.Errorf("the filter %q is not supported", name)
		}
		return nil, fmt.Errorf("no filter named %q", name)
	}
	if err := r.step(1); err != nil {
		return nil, err
	}
	return f(r, v, a)
}

// textFilter is a filter on str(v) without arguments.
func textFilter(f func(string) string) filterFunc {
	return func(r *run, v Value, a args) (Value, error) {
		if _, err := a.bind("filter", 0); err != nil {
			return nil, err
		}
		s, err := r.str(v)
		if err != nil {
			return nil, err
		}
		if err := r.text(len(s)); err != nil {
			return nil, err
		}
		// Case changes and escapes lengthen a byte to five of them at most.
		if err := r.alloc(5 * len(s)); err != nil {
			return nil, err
		}
		return f(s), nil
	}
}

func escapeHTML(s string) string {
	return strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;").Replace(s)
}

// titleFilter is jinja's title: words begin after white space, - ( { [ <.
func titleFilter(s string) string {
	var sb strings.Builder
	start := true
	for i, c := range s {
		word := s[i : i+len(string(c))]
		if isSpace(c) || strings.ContainsRune("-({[<", c) {
			sb.WriteString(word)
			start = true
			continue
		}
		if start {
			sb.WriteString(strings.ToUpper(word))
		} else {
			sb.WriteString(strings.ToLower(word))
		}
		start = false
	}
	return sb.String()
}

func filterDefault(_ *run, v Value, a args) (Value, error) {
	b, err := a.bind("default", 0, "default_value", "boolean")
	if err != nil {
		return nil, err
	}
	if _, is := v.(*undefined); is || b.bool(1, false) && !truth(v) {
		return b.value(0, ""), nil
	}
	return v, nil
}

func filterLength(r *run, v Value, a args) (Value, error) {
	if _, err := a.bind("length", 0); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case string:
		n, err := r.runeCount(v)
		return int64(n), err
	case *list:
		if v.kind != kindGenerator {
			return int64(len(v.items)), nil
		}
	case *dict:
		return int64(len(v.keys)), nil
	case *undefined:
		return int64(0), nil
	}
	return nil, fmt.Errorf("object of type %q has no len()", typeName(v))
}

func filterAbs(_ *run, v Value, a args) (Value, error) {
	if _, err := a.bind("abs", 0); err != nil {
		return nil, err
	}
	if f, ok := v.(float64); ok {
		return math.Abs(f), nil
	}
	i, ok := asInt(v)
	if !ok {
		return negate(v, false) // the error
	}
	if i < 0 {
		return negate(i, true)
	}
	return i, nil
}

func filterInt(_ *run, v Value, a args) (Value, error) {
	b, err := a.bind("int", 0, "default", "base")
	if err != nil {
		return nil, err
	}
	base, err := b.int(1, 10)
	if err != nil {
		return nil, err
	}
	def := b.value(0, int64(0))
	switch v := v.(type) {
	case *undefined:
		return nil, v.err()
	case bigInt:
		return v, nil
	case string:
		s := strings.TrimFunc(v, isSpace)
		if base == 16 {
			s = strings.TrimPrefix(strings.TrimPrefix(s, "0x"), "0X")
		}
		if base == 0 || base >= 2 && base <= 36 {
			if n, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), int(base), 64); err == nil {
				return n, nil
			}
		}
		f, ok := parseFloat(v)
		if !ok {
			return def, nil
		}
		return floatToInt(f, def)
	case float64:
		return floatToInt(v, def)
	}
	if n, ok := asInt(v); ok {
		return n, nil
	}
	return def, nil
}

func floatToInt(f float64, def Value) (Value, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return def, nil
	}
	if math.Abs(f) >= 1<<63 {
		return nil, errOverflow
	}
	return int64(f), nil
}

// parseFloat is Python's float(s).
func parseFloat(s string) (float64, bool) {
	s = strings.TrimFunc(s, isSpace)
	if strings.ContainsAny(s, "xXpP") {
		return 0, false // Go reads hexadecimal floats, Python does not
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	var number *strconv.NumError
	if errors.As(err, &number) && errors.Is(number.Err, strconv.ErrRange) {
		err = nil // infinity, as in Python
	}
	return f, err == nil
}

func filterFloat(_ *run, v Value, a args) (Value, error) {
	b, err := a.bind("float", 0, "default")
	if err != nil {
		return nil, err
	}
	if s, ok := v.(string); ok {
		if f, ok := parseFloat(s); ok {
			return f, nil
		}
	} else if f, ok := asFloat(v); ok {
		return f, nil
	} else if u, ok := v.(*undefined); ok {
		return nil, u.err()
	}
	return b.value(0, 0.0), nil
}

func filterRound(_ *run, v Value, a args) (Value, error) {
	b, err := a.bind("round", 0, "precision", "method")
	if err != nil {
		return nil, err
	}
	precision, err := b.int(0, 0)
	if err != nil {
		return nil, err
	}
	method, err := b.str(1, "common")
	if err != nil {
		return nil, err
	}
	f, ok := asFloat(v)
	if !ok {
		return negate(v, false) // the error
	}
	if precision < -300 || precision > 300 {
		return nil, errors.New("round: the precision is out of range")
	}
	scale := math.Pow(10, float64(precision))
	switch method {
	case "common":
		if i, isInt := asInt(v); isInt && precision >= 0 {
			return i, nil
		}
		// Python rounds the decimal value, halves to even.
		s := strconv.FormatFloat(f, 'f', int(max(precision, 0)), 64)
		if precision < 0 {
			s = strconv.FormatFloat(math.RoundToEven(f*scale)/scale, 'f', 0, 64)
		}
		out, err := strconv.ParseFloat(s, 64)
		if _, isInt := asInt(v); isInt && err == nil {
			return int64(out), nil
		}
		return out, err
	case "ceil":
		return math.Ceil(f*scale) / scale, nil
	case "floor":
		return math.Floor(f*scale) / scale, nil
	}
	return nil, errors.New("method must be common, ceil or floor")
}

func filterAttr(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("attr", 1, "name")
	if err != nil {
		return nil, err
	}
	name, err := b.str(0, "")
	if err != nil {
		return nil, err
	}
	if x, ok := r.attribute(v, name); ok {
		return x, nil
	}
	return noAttr(v, name), r.alloc(64)
}

func filterFormat(r *run, v Value, a args) (Value, error) {
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	if len(a.names) == 0 {
		return r.percent(s, newTuple(a.pos...))
	}
	if len(a.pos) > 0 {
		return nil, errors.New("can't handle positional and keyword arguments at the same time")
	}
	d := newDict()
	for i, name := range a.names {
		d.setString(name, a.vals[i])
	}
	return r.percent(s, d)
}
