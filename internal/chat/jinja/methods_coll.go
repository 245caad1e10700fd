package jinja

import "errors"

var (
	listMethods map[string]func(r *run, l *list, a args) (Value, error)
	dictMethods map[string]func(r *run, d *dict, a args) (Value, error)
)

func init() { // literals would refer to themselves through run
	listMethods = map[string]func(r *run, l *list, a args) (Value, error){
		"count": func(r *run, l *list, a args) (Value, error) {
			b, err := a.bind("count", 1, "value")
			if err != nil {
				return nil, err
			}
			n := int64(0)
			for _, item := range l.items {
				eq, err := r.equalStep(item, b.vals[0])
				if err != nil {
					return nil, err
				}
				if eq {
					n++
				}
			}
			return n, nil
		},
		"index": func(r *run, l *list, a args) (Value, error) {
			b, err := a.bind("index", 1, "value")
			if err != nil {
				return nil, err
			}
			for i, item := range l.items {
				eq, err := r.equalStep(item, b.vals[0])
				if err != nil {
					return nil, err
				}
				if eq {
					return int64(i), nil
				}
			}
			return nil, errors.New("the value is not in the list")
		},
		"copy": func(_ *run, l *list, a args) (Value, error) {
			_, err := a.bind("copy", 0)
			return l, err // lists never change
		},
	}
	dictMethods = map[string]func(r *run, d *dict, a args) (Value, error){
		"get": func(r *run, d *dict, a args) (Value, error) {
			b, err := a.bind("get", 1, "key", "default")
			if err != nil {
				return nil, err
			}
			h, err := r.hash(b.vals[0])
			if err != nil {
				return nil, err
			}
			if v, ok := d.get(h); ok {
				return v, nil
			}
			return b.value(1, nil), nil
		},
		"keys": func(r *run, d *dict, a args) (Value, error) {
			_, err := a.bind("keys", 0)
			return &list{kind: kindView, items: d.keys, name: "dict_keys"}, err
		},
		"values": func(r *run, d *dict, a args) (Value, error) {
			_, err := a.bind("values", 0)
			return &list{kind: kindView, items: d.vals, name: "dict_values"}, err
		},
		"items": func(r *run, d *dict, a args) (Value, error) {
			if _, err := a.bind("items", 0); err != nil {
				return nil, err
			}
			return r.pairs(d, kindView, "dict_items")
		},
		"copy": func(_ *run, d *dict, a args) (Value, error) {
			_, err := a.bind("copy", 0)
			return d, err // dicts never change
		},
	}
}

func (r *run) equalStep(a, b Value) (bool, error) {
	if err := r.step(1); err != nil {
		return false, err
	}
	return r.equal(a, b)
}

// pairs returns the (key, value) tuples of d.
func (r *run) pairs(d *dict, kind listKind, name string) (*list, error) {
	if err := r.items(len(d.keys)); err != nil {
		return nil, err
	}
	if err := r.alloc(128 * len(d.keys)); err != nil {
		return nil, err
	}
	l := &list{kind: kind, name: name, items: make([]Value, len(d.keys))}
	for i, k := range d.keys {
		l.items[i] = newTuple(k, d.vals[i])
	}
	return l, nil
}
