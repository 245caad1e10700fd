package sample

import (
	"errors"
	"math"
	"slices"
	"testing"
)

// TestAnyPositiveRepetitionPenaltyGivesAToken has penalties whose products and quotients are too large or too small for a
// float32. 0 and 1 were seen before.
func TestAnyPositiveRepetitionPenaltyGivesAToken(t *testing.T) {
	for _, c := range []struct {
		penalty float64
		logits  []float32
		want    int32
	}{
		{math.SmallestNonzeroFloat64, []float32{1, -1, 3}, 0}, // rewarded without bound
		{1e-300, []float32{0, 0, 3}, 2},                       // nothing to multiply
		{1e-40, []float32{1e30, 5, 3}, 0},
		{1e300, []float32{5, 0, -7}, 0}, // of 0, 0 and -7
		{math.MaxFloat64, []float32{-1e30, 0, -7}, 1},
		{math.MaxFloat64, []float32{-1, -2, -7}, 2},
	} {
		for _, temperature := range []float64{0, 1} {
			p := Default()
			p.Temperature, p.RepetitionPenalty, p.TopK = temperature, c.penalty, 1
			s := New(p, 3, 0, 1)
			before := slices.Clone(c.logits)
			id, err := s.Sample(c.logits)
			if err != nil || temperature == 0 && id != c.want {
				t.Errorf("penalty %v, temperature %v, logits %v: %d, %v; want %d", c.penalty, temperature, before, id, err, c.want)
			}
			if !slices.Equal(c.logits, before) {
				t.Errorf("logits are %v after it, were %v", c.logits, before)
			}
		}
	}
	p := Default()
	p.Temperature, p.RepetitionPenalty, p.BadWords = 0, 1e-300, [][]int32{{0}}
	if id, err := New(p, 3, 0, 1).Sample([]float32{9, -8, -7}); err != nil || id == 0 {
		t.Errorf("a bad word under a penalty: %d, %v", id, err)
	}
}

func TestParametersThatRuleOutEverything(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Params)
		fits   bool
	}{
		"only the end, which is too early": {func(p *Params) { p.AllowedTokenIDs, p.EndIDs, p.MinTokens = []int32{2}, []int32{2, 3}, 1 }, false},
		"only the end":                     {func(p *Params) { p.AllowedTokenIDs, p.EndIDs = []int32{2}, []int32{2, 3} }, true},
		"only a bad word":                  {func(p *Params) { p.AllowedTokenIDs, p.BadWords = []int32{2, 2}, [][]int32{{2}} }, false},
		"a bad word and another":           {func(p *Params) { p.AllowedTokenIDs, p.BadWords = []int32{2, 1}, [][]int32{{2}} }, true},
		"a bad word of two tokens":         {func(p *Params) { p.AllowedTokenIDs, p.BadWords = []int32{2}, [][]int32{{2, 2}} }, true},
	} {
		p := Default()
		c.change(&p)
		var bad *ParamError
		switch err := p.CheckVocab(5); {
		case c.fits && err != nil:
			t.Errorf("%s: %v", name, err)
		case !c.fits && (!errors.As(err, &bad) || bad.Field != "allowed_token_ids"):
			t.Errorf("%s: %v, want a fault in allowed_token_ids", name, err)
		}
	}
	// What only a later step can tell.
	p := Default()
	p.AllowedTokenIDs, p.BadWords = []int32{2}, [][]int32{{2, 2}}
	s := New(p, 5)
	logits := []float32{1, 2, 3, 4, 5}
	if id, err := s.Sample(logits); id != 2 || err != nil {
		t.Fatalf("first token %d, %v", id, err)
	}
	s.Accept(2)
	if _, err := s.Sample(logits); !errors.Is(err, ErrRuledOut) {
		t.Errorf("second token: %v, want ErrRuledOut", err)
	}
	inf := float32(math.Inf(-1))
	if _, err := s.Sample([]float32{inf, inf, inf, inf, inf}); !errors.Is(err, ErrNoToken) {
		t.Errorf("a model without a choice: %v, want ErrNoToken", err)
	}
}
