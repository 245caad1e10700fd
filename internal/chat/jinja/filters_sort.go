package jinja

import (
	"errors"
	"slices"
	"strings"
)

// keyed is an item with what it is sorted by.
type keyed struct {
	keys []Value
	item Value
}

// sorted sorts items by keys, stably. An error of a comparison ends it.
func (r *run) sorted(items []keyed, reverse bool) error {
	var fault error
	slices.SortStableFunc(items, func(a, b keyed) int {
		if fault != nil {
			return 0
		}
		if fault = r.step(1); fault != nil {
			return 0
		}
		for i := range a.keys {
			c, err := r.order("<", a.keys[i], b.keys[i])
			if err != nil {
				fault = err
				return 0
			}
			if c == unordered {
				continue
			}
			if c != 0 {
				if reverse {
					return -c
				}
				return c
			}
		}
		return 0
	})
	return fault
}

func (r *run) keyItems(v Value, getters []getter) ([]keyed, error) {
	items, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	if err := r.items(4 * len(items)); err != nil {
		return nil, err
	}
	out := make([]keyed, len(items))
	for i, item := range items {
		out[i] = keyed{make([]Value, len(getters)), item}
		if err := r.alloc(16 * len(getters)); err != nil {
			return nil, err
		}
		for j, g := range getters {
			if out[i].keys[j], err = r.get(g, item); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func plainItems(in []keyed) []Value {
	out := make([]Value, len(in))
	for i, k := range in {
		out[i] = k.item
	}
	return out
}

func filterSort(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("sort", 0, "reverse", "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	paths := []Value{b.value(2, nil)}
	if s, ok := paths[0].(string); ok {
		paths = nil
		for part := range strings.SplitSeq(s, ",") {
			if len(paths) >= 64 {
				return nil, limitf("more than 64 attributes to sort by")
			}
			paths = append(paths, part)
		}
	}
	getters := make([]getter, len(paths))
	for i, p := range paths {
		if getters[i], err = newGetter(p, !b.bool(1, false), nil); err != nil {
			return nil, err
		}
	}
	items, err := r.keyItems(v, getters)
	if err != nil {
		return nil, err
	}
	if err := r.sorted(items, b.bool(0, false)); err != nil {
		return nil, err
	}
	return newList(plainItems(items)), nil
}

func filterDictSort(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("dictsort", 0, "case_sensitive", "by", "reverse")
	if err != nil {
		return nil, err
	}
	by, err := b.str(1, "key")
	if err != nil {
		return nil, err
	}
	pos, ok := map[string]int64{"key": 0, "value": 1}[by]
	if !ok {
		return nil, errors.New(`you can only sort by either "key" or "value"`)
	}
	d, ok := v.(*dict)
	if !ok {
		return nil, noAttr(v, "items").err()
	}
	pairs, err := r.pairs(d, kindList, "")
	if err != nil {
		return nil, err
	}
	items, err := r.keyItems(pairs, []getter{{parts: []Value{pos}, ignoreCase: !b.bool(0, false)}})
	if err != nil {
		return nil, err
	}
	if err := r.sorted(items, b.bool(2, false)); err != nil {
		return nil, err
	}
	return newList(plainItems(items)), nil
}

func filterUnique(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("unique", 0, "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	g, err := newGetter(b.value(1, nil), !b.bool(0, false), nil)
	if err != nil {
		return nil, err
	}
	items, err := r.keyItems(v, []getter{g})
	if err != nil {
		return nil, err
	}
	seen := map[hashKey]bool{}
	var out []Value
	for _, k := range items {
		h, err := r.hash(k.keys[0])
		if err != nil {
			return nil, err
		}
		if !seen[h] {
			seen[h] = true
			out = append(out, k.item)
		}
	}
	return newGenerator(out), r.items(6 * len(out))
}

// filterMinMax is min (sign -1) and max (sign 1): the first of equals.
func filterMinMax(name string, sign int) filterFunc {
	return func(r *run, v Value, a args) (Value, error) {
		b, err := a.bind(name, 0, "case_sensitive", "attribute")
		if err != nil {
			return nil, err
		}
		g, err := newGetter(b.value(1, nil), !b.bool(0, false), nil)
		if err != nil {
			return nil, err
		}
		items, err := r.keyItems(v, []getter{g})
		if err != nil {
			return nil, err
		}
		if len(items) == 0 {
			return &undefined{"No aggregated item, sequence was empty."}, nil
		}
		best := items[0]
		for _, k := range items[1:] {
			c, err := r.order("<", k.keys[0], best.keys[0])
			if err != nil {
				return nil, err
			}
			if c == sign {
				best = k
			}
		}
		return best.item, nil
	}
}

func filterGroupBy(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("groupby", 1, "attribute", "default", "case_sensitive")
	if err != nil {
		return nil, err
	}
	sensitive := b.bool(2, false)
	g, err := newGetter(b.vals[0], !sensitive, b.value(1, nil))
	if err != nil {
		return nil, err
	}
	items, err := r.keyItems(v, []getter{g})
	if err != nil {
		return nil, err
	}
	if err := r.sorted(items, false); err != nil {
		return nil, err
	}
	g.ignoreCase = false
	var groups []Value
	for start := 0; start < len(items); {
		end := start + 1
		for end < len(items) {
			same, err := r.equalStep(items[start].keys[0], items[end].keys[0])
			if err != nil {
				return nil, err
			}
			if !same {
				break
			}
			end++
		}
		key := items[start].keys[0]
		if !sensitive {
			if key, err = r.get(g, items[start].item); err != nil {
				return nil, err
			}
		}
		if err := r.items(end - start + 8); err != nil {
			return nil, err
		}
		groups = append(groups, &list{
			kind: kindTuple, names: []string{"grouper", "list"},
			items: []Value{key, newList(plainItems(items[start:end]))},
		})
		start = end
	}
	return newList(groups), nil
}
