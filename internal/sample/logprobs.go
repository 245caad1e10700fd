package sample

import (
	"fmt"
	"math"
	"slices"
)

// MaxLogprobs is the largest number of alternatives that Logprobs gives.
const MaxLogprobs = 20

// Logprob says how probable a token was, by logits that no parameter has
// changed (vLLM's raw_logprobs).
type Logprob struct {
	Logprob float64 // natural logarithm of its probability; -Inf is possible
	Rank    int     // how many tokens are at least as probable, itself included
	// Top are the most probable tokens in descending order, of equals the
	// lower id first. The token itself may be among them.
	Top []TokenLogprob
}

// TokenLogprob is one of the most probable tokens.
type TokenLogprob struct {
	ID      int32
	Logprob float64
}

// Logprobs describes the token chosen and the n most probable ones, at most
// MaxLogprobs, after a log-softmax over all of logits [vocab]. Sample leaves
// logits as they were, so it can be called before. The error is ErrNaN,
// ErrNoToken, or tells of an id or n that is out of range.
func Logprobs(logits []float32, chosen int32, n int) (Logprob, error) {
	if chosen < 0 || int(chosen) >= len(logits) {
		return Logprob{}, fmt.Errorf("sample: token id %d of %d", chosen, len(logits))
	}
	if n < 0 || n > MaxLogprobs {
		return Logprob{}, fmt.Errorf("sample: %d alternatives, at most %d", n, MaxLogprobs)
	}
	_, most, err := argmax(nil, logits)
	if err != nil {
		return Logprob{}, err
	}
	var sum float64
	lp := Logprob{Top: make([]TokenLogprob, 0, n+1)}
	least := math.Inf(-1) // of Top, once it is full
	for id, l := range logits {
		x := float64(l)
		sum += exp(x - float64(most))
		if l >= logits[chosen] {
			lp.Rank++
		}
		if n == 0 || len(lp.Top) == n && x <= least {
			continue
		}
		at, _ := slices.BinarySearchFunc(lp.Top, x, func(t TokenLogprob, x float64) int {
			if t.Logprob >= x { // equals have lower ids
				return -1
			}
			return 1
		})
		lp.Top = slices.Insert(lp.Top, at, TokenLogprob{int32(id), x})
		lp.Top = lp.Top[:min(len(lp.Top), n)]
		least = lp.Top[len(lp.Top)-1].Logprob
	}
	norm := float64(most) + log(sum)
	lp.Logprob = float64(logits[chosen]) - norm
	for i := range lp.Top {
		lp.Top[i].Logprob -= norm
	}
	return lp, nil
}
