package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// maxDataDepth bounds how deep the data may be nested.
const maxDataDepth = 100

// Pair is a member of Object.
type Pair struct {
	Key   string
	Value any
}

// Object is a mapping that keeps the order of its members.
type Object []Pair

// fromGo makes a Value of the data: nil, bool, string, all kinds of int and
// float, json.Number, json.RawMessage (the order of members is kept), Object,
// []any, []string, []map[string]any, map[string]any and map[string]string
// (keys sorted). Any other type goes through its JSON.
func (r *run) fromGo(v any, depth int) (Value, error) {
	if depth > maxDataDepth {
		return nil, limitf("the data are nested more than %d deep", maxDataDepth)
	}
	if err := r.alloc(16); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil, bool, int64, float64:
		return v, nil
	case string:
		return strings.ToValidUTF8(v, "\uFFFD"), r.work(len(v))
	case int:
		return int64(v), nil
	case int32:
		return int64(v), nil
	case float32:
		return float64(v), nil
	case json.Number:
		return numberValue(v)
	case json.RawMessage:
		return r.fromJSON(v)
	case Object:
		d := newDict()
		for _, m := range v {
			x, err := r.fromGo(m.Value, depth+1)
			if err != nil {
				return nil, err
			}
			d.setString(strings.ToValidUTF8(m.Key, "\uFFFD"), x)
		}
		return d, r.alloc(96 * len(v))
	case map[string]any:
		o := make(Object, 0, len(v))
		for k, x := range v {
			o = append(o, Pair{k, x})
		}
		slices.SortFunc(o, func(a, b Pair) int { return strings.Compare(a.Key, b.Key) })
		return r.fromGo(o, depth)
	case map[string]string:
		m := make(map[string]any, len(v))
		for k, x := range v {
			m[k] = x
		}
		return r.fromGo(m, depth)
	case []any:
		return fromSlice(r, v, depth)
	case []string:
		return fromSlice(r, v, depth)
	case []map[string]any:
		return fromSlice(r, v, depth)
	case []json.RawMessage:
		return fromSlice(r, v, depth)
	case []Object:
		return fromSlice(r, v, depth)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return r.fromJSON(raw)
}

func fromSlice[T any](r *run, v []T, depth int) (Value, error) {
	if err := r.alloc(48 + 16*len(v)); err != nil {
		return nil, err
	}
	items := make([]Value, len(v))
	for i, x := range v {
		var err error
		if items[i], err = r.fromGo(x, depth+1); err != nil {
			return nil, err
		}
	}
	return newList(items), nil
}

// numberValue keeps integers apart from floats, as Python's json does.
func numberValue(n json.Number) (Value, error) {
	s := string(n)
	if strings.ContainsAny(s, ".eE") {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return nil, fmt.Errorf("%q is no number", clip(s))
		}
		return f, nil
	}
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i, nil
	}
	if digits(strings.TrimPrefix(s, "-")) != len(strings.TrimPrefix(s, "-")) || s == "" {
		return nil, fmt.Errorf("%q is no number", clip(s))
	}
	return bigInt(s), nil
}

func clip(s string) string { return s[:min(len(s), 40)] }

// fromJSON reads JSON with the order of its members.
func (r *run) fromJSON(raw []byte) (Value, error) {
	if err := r.alloc(len(raw)); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := r.jsonValue(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("there is more than one JSON value")
	}
	return v, nil
}

func (r *run) jsonValue(d *json.Decoder, depth int) (Value, error) {
	if depth > maxDataDepth {
		return nil, limitf("the data are nested more than %d deep", maxDataDepth)
	}
	t, err := d.Token()
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	if err := r.alloc(48); err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Number:
		return numberValue(t)
	case json.Delim:
		if t == '[' {
			var items []Value
			for d.More() {
				v, err := r.jsonValue(d, depth+1)
				if err != nil {
					return nil, err
				}
				items = append(items, v)
			}
			_, err := d.Token()
			return newList(items), err
		}
		obj := newDict()
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := r.jsonValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			obj.setString(key.(string), v)
			if err := r.alloc(96); err != nil {
				return nil, err
			}
		}
		_, err := d.Token()
		return obj, err
	}
	return t, nil // nil, bool, string
}
