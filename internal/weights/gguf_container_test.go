package weights

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// TestGGUFMetadata reads every type of value, and asks for each as another.
func TestGGUFMetadata(t *testing.T) {
	t.Parallel()
	m := ggufMaker{kv: []ggufKV{
		{"u8", uint8(200)},
		{"i8", int8(-3)},
		{"u16", uint16(60000)},
		{"i16", int16(-300)},
		{"u32", uint32(4000000000)},
		{"i32", int32(-70000)},
		{"u64", uint64(1 << 40)},
		{"i64", int64(-1 << 40)},
		{"huge", uint64(1 << 63)},
		{"f32", float32(0.5)},
		{"f64", 0.1},
		{"nan", float32(math.NaN())},
		{"yes", true},
		{"no", false},
		{"text", "Grüße\x00\xff"},
		{"texts", []string{"a", "", "ccc"}},
		{"ids", []int32{5, -1}},
		{"scores", []float32{1.5, -2}},
		{"none", []int32{}},
	}}
	for _, version := range []uint32{2, 3} {
		m.version = version
		f, err := readGGUF("some.gguf", memBlob(m.file()))
		if err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]int64{
			"u8": 200, "i8": -3, "u16": 60000, "i16": -300, "u32": 4000000000, "i32": -70000, "u64": 1 << 40, "i64": -1 << 40, "absent": 7,
		} {
			if n, err := f.kv.integer(key, 7); err != nil || n != want {
				t.Errorf("integer %s = %d, %v, want %d", key, n, err, want)
			}
		}
		for key, want := range map[string]float64{"u8": 200, "i16": -300, "f32": 0.5, "f64": 0.1, "huge": 1 << 63, "absent": 7} {
			if x, err := f.kv.number(key, 7); err != nil || x != want {
				t.Errorf("number %s = %v, %v, want %v", key, x, err, want)
			}
		}
		if s, err := f.kv.text("text", ""); err != nil || s != "Grüße\x00\xff" {
			t.Errorf("text = %q, %v", s, err)
		}
		yes, _ := f.kv.flag("yes", false)
		no, _ := f.kv.flag("no", true)
		absent, _ := f.kv.flag("absent", true)
		if !yes || no || !absent {
			t.Errorf("flags = %v %v %v", yes, no, absent)
		}
		if s, err := f.kv.texts("texts"); err != nil || !slices.Equal(s, []string{"a", "", "ccc"}) {
			t.Errorf("texts = %q, %v", s, err)
		}
		if n, err := f.kv.integers("ids"); err != nil || !slices.Equal(n, []int32{5, -1}) {
			t.Errorf("integers = %v, %v", n, err)
		}
		if x, err := f.kv.numbers("scores"); err != nil || !slices.Equal(x, []float32{1.5, -2}) {
			t.Errorf("numbers = %v, %v", x, err)
		}
		if n, err := f.kv.integers("none"); err != nil || n == nil || len(n) != 0 {
			t.Errorf("an empty array = %v, %v", n, err)
		}
		for key, get := range map[string]func(key string) error{
			"text":  func(k string) error { _, err := f.kv.integer(k, 0); return err },
			"huge":  func(k string) error { _, err := f.kv.integer(k, 0); return err },
			"nan":   func(k string) error { _, err := f.kv.number(k, 0); return err },
			"yes":   func(k string) error { _, err := f.kv.number(k, 0); return err },
			"ids":   func(k string) error { _, err := f.kv.texts(k); return err },
			"texts": func(k string) error { _, err := f.kv.numbers(k); return err },
			"f32":   func(k string) error { _, err := f.kv.integers(k); return err },
			"u8":    func(k string) error { _, err := f.kv.flag(k, false); return err },
			"i8":    func(k string) error { _, err := f.kv.text(k, ""); return err },
		} {
			wantWords(t, get(key), key)
		}
	}
}

func TestGGUFTensors(t *testing.T) {
	t.Parallel()
	m := ggufMaker{align: 64, kv: []ggufKV{{"general.alignment", uint32(64)}}, tensors: []ggufEntry{
		{name: "a", dims: []uint64{3, 5}, kind: ggmlF32, data: make([]byte, 60)},
		{name: "b", dims: []uint64{256, 2, 3}, kind: ggmlQ6K, data: make([]byte, 6*210)},
		{name: "c", dims: []uint64{7}, kind: ggmlBF16, data: make([]byte, 14)},
	}}
	file := m.file()
	file = file[:len(file)-50] // the last tensor needs no padding
	f, err := readGGUF("some.gguf", memBlob(file))
	if err != nil {
		t.Fatal(err)
	}
	base := int64(m.up(uint64(len(m.header()))))
	for name, want := range map[string]string{
		"a": fmt.Sprint([]int{3, 5}, base, 60),
		"b": fmt.Sprint([]int{256, 2, 3}, base+64, 1260),
		"c": fmt.Sprint([]int{7}, base+64+1280, 14),
	} {
		g := f.tensors[name]
		if got := fmt.Sprint(g.dims, g.offset, g.size); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
