package engine

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestStopStringsWhereverTheyFall compares answers with random stop strings, which lie within, across and at the borders of
// events, with what the whole text says: it ends with the first token that completes one, before the earliest of them.
func TestStopStringsWhereverTheyFall(t *testing.T) {
	e := newFake(t, &fakeExec{}, 32)
	rng := rand.New(rand.NewPCG(3, 1))
	const tokens = 12
	for range 300 {
		first := 10 + rng.IntN(500)
		var pieces []string
		for i := range tokens {
			pieces = append(pieces, fmt.Sprintf(" %d", first+1+i))
		}
		all := strings.Join(pieces, "")
		req := greedy([]int32{int32(first)}, tokens)
		p := &req.Params
		for range 1 + rng.IntN(3) {
			from := rng.IntN(len(all))
			p.Stop = append(p.Stop, all[from:min(len(all), from+1+rng.IntN(7))])
		}
		p.IncludeStop, p.MinTokens = rng.IntN(2) == 0, rng.IntN(4)
		want, stop := stoppedText(pieces, p)

		text, _, last, err := collect(t.Context(), e, req)
		reason := FinishLength
		if stop != "" {
			reason = FinishStop
		}
		if got, _ := last.StopReason.(string); err != nil || text != want || got != stop || last.FinishReason != reason {
			t.Fatalf("%q with the stops %q, include %v, at least %d tokens: %q, %q, %s, %v; want %q, %q",
				all, p.Stop, p.IncludeStop, p.MinTokens, text, got, last.FinishReason, err, want, stop)
		}
	}
}

// stoppedText is what pieces give under the stop strings of p, of which only what comes after MinTokens counts, and the string
// that ended it.
func stoppedText(pieces []string, p *Params) (text, stop string) {
	before := strings.Join(pieces[:p.MinTokens], "")
	after := ""
	for _, piece := range pieces[p.MinTokens:] {
		after += piece
		at := -1
		for _, s := range p.Stop {
			if i := strings.Index(after, s); i >= 0 && (at < 0 || i < at) {
				at, stop = i, s
			}
		}
		switch {
		case at < 0:
		case p.IncludeStop:
			return before + after[:at+len(stop)], stop
		default:
			return before + after[:at], stop
		}
	}
	return before + after, ""
}
