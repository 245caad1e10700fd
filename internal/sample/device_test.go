package sample

import (
	"fmt"
	"math"
	"testing"
)

func TestDevice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change func(*Params)
		want   string
	}{
		{func(*Params) {}, "1 0 1 1e+30"},
		{func(p *Params) { p.Temperature = 0 }, "0 0 1 1e+30"},
		{func(p *Params) { p.Temperature, p.TopK = 1e-6, 3 }, "0 0 1 1e+30"}, // greedy
		{func(p *Params) { p.Temperature = 1e-3 }, "100 0 1 1e+30"},          // the least that there is
		{func(p *Params) { p.Temperature, p.TopK = 0.5, 63 }, "2 63 1 1e+30"},
		{func(p *Params) { p.TopK = 64 }, "cannot"},
		{func(p *Params) { p.TopK = 600 }, "1 0 1 1e+30"}, // no filter: there are 600 ids
		{func(p *Params) { p.TopK, p.TopP = 64, 0.5 }, "1 64 0.5 1e+30"},
		{func(p *Params) { p.TopP = 1 - 0x1p-53 }, fmt.Sprint(1, 0, float32(1-0x1p-24), 1e30)}, // not all
		{func(p *Params) { p.MinP = 1 }, "1 0 1 0"},
		{func(p *Params) { p.MinP = 0.5 }, fmt.Sprint(1, 0, 1, float32(math.Ln2))},
		{func(p *Params) { p.MinP = math.SmallestNonzeroFloat64 }, "1 0 1 744.44006"},
		{func(p *Params) { p.Temperature = math.MaxFloat64 }, "cannot"},
		{func(p *Params) { p.AllowedTokenIDs = []int32{1} }, "cannot"},
		{func(p *Params) { p.BadWords = [][]int32{{1, 2}} }, "cannot"},
		{func(p *Params) { p.LogitBias = map[int32]float64{1: 1} }, "1 0 1 1e+30 adjusts"},
		{func(p *Params) { p.FrequencyPenalty = 1 }, "1 0 1 1e+30 adjusts"},
		{func(p *Params) { p.MinTokens, p.EndIDs = 1, []int32{3} }, "1 0 1 1e+30 adjusts"},
		{func(p *Params) { p.MinTokens = 1 }, "1 0 1 1e+30"},
	} {
		p := seeded(Default(), 3)
		c.change(&p)
		s := New(p, 600)
		s.Skip(5)
		d, ok := s.Device()
		got := fmt.Sprint(d.InvTemperature, d.TopK, d.TopP, d.MinP)
		if d.Adjusts {
			got += " adjusts"
		}
		if !ok {
			got = "cannot"
		}
		if got != c.want {
			t.Errorf("%+v: got %s, want %s", p, got, c.want)
		}
		if ok && (d.Key != s.key || d.Step != 5) {
			t.Errorf("key %#x, step %d; want %#x and 5", d.Key, d.Step, s.key)
		}
	}
}

// Steps that the device took are steps.
func TestSkip(t *testing.T) {
	t.Parallel()
	logits := make([]float32, 500)
	a, b := New(seeded(Default(), 9), len(logits)), New(seeded(Default(), 9), len(logits))
	for n := range 10 {
		for range n {
			if _, err := a.Sample(logits); err != nil {
				t.Fatal(err)
			}
		}
		b.Skip(n)
		x, _ := a.Sample(logits)
		if y, _ := b.Sample(logits); x != y {
			t.Fatalf("after %d steps more: %d, want %d", n, y, x)
		}
	}
}
