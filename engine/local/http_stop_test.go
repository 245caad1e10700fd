package local

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/openai"
)

// stopCase is a request for a known answer, with something that may end it early.
type stopCase struct {
	stops   []string
	ids     []int32
	include bool
}

// randomStops takes pieces of the answer, some of which go over the borders of tokens, texts that do not come, and ids.
func randomStops(rng *rand.Rand, text string, ids []int32) (c stopCase) {
	runes := []rune(text)
	for range rng.IntN(4) {
		at := rng.IntN(len(runes))
		piece := string(runes[at:min(len(runes), at+1+rng.IntN(9))])
		if rng.IntN(2) == 0 {
			piece += "\u2603" // which begins alike and never comes
		}
		c.stops = append(c.stops, piece)
	}
	if rng.IntN(4) == 0 {
		c.ids = []int32{ids[rng.IntN(len(ids))]}
	}
	c.include = rng.IntN(2) == 0
	return c
}

// expect works out the answer from all of its text: pieces are the texts of its tokens. It ends at the token that completes
// the first of the stops or is a stop id, and within it where the earliest stop begins or, included, ends.
func (c stopCase) expect(pieces []string, ids []int32) (text, reason string) {
	for i, piece := range pieces {
		if slices.Contains(c.ids, ids[i]) {
			// The id's own text is no part unless it is included, and what it would complete does not count then.
			if !c.include {
				return text, "id"
			}
		}
		text += piece
		first := -1
		for _, s := range c.stops {
			if at := strings.Index(text, s); at >= 0 && (first < 0 || at < first) {
				first, reason = at, s
			}
		}
		switch {
		case first >= 0 && c.include:
			return text[:first+len(reason)], reason
		case first >= 0:
			return text[:first], reason
		case slices.Contains(c.ids, ids[i]):
			return text, "id"
		}
	}
	return text, ""
}

// TestStopsCutStreamsAndWholeAnswersAlike asks for the same answers with random stops, as a stream and in one piece, and
// compares both with what the whole text says.
func TestStopsCutStreamsAndWholeAnswersAlike(t *testing.T) {
	s := serveEngine(t, engine.Config{MaxModelLen: 256, MaxSeqs: 4, Deterministic: true})
	rng := rand.New(rand.NewPCG(4, 5))
	const tokens, rounds = 20, 12
	for _, question := range []string{"Tell me a story about a little cat on the Moon.", "天空为什么是蓝色的？"} {
		body := map[string]any{"prompt": question, "max_tokens": tokens, "temperature": 0, "ignore_eos": true, "skip_special_tokens": false}
		var pieces []string
		var ids []int32
		req := engine.Request{Prompt: &question, Params: engine.Params{Temperature: zero(), MaxTokens: tokens, IgnoreEOS: true, KeepSpecial: true}}
		for ev, err := range s.Generate(t.Context(), req) {
			if err != nil {
				t.Fatal(err)
			}
			pieces, ids = append(pieces, ev.Text), append(ids, ev.TokenIDs...)
		}
		whole := strings.Join(pieces, "")
		if utf8.RuneCountInString(whole) < tokens/2 || len(ids) != tokens {
			t.Fatalf("%d tokens: %q", len(ids), whole)
		}
		ended := map[bool]int{}
		for range rounds {
			c := randomStops(rng, whole, ids)
			want, reason := c.expect(pieces, ids)
			body["stop"], body["stop_token_ids"], body["include_stop_str_in_output"] = c.stops, c.ids, c.include
			ended[reason != ""]++

			body["stream"] = false
			var answer openai.Completion
			s.post(t, encode(t, body), &answer)
			body["stream"] = true
			var streamed string
			var last openai.ChunkChoice
			s.stream(t.Context(), t, encode(t, body), func(chunk openai.Chunk) bool {
				last = chunk.Choices[0]
				streamed += *last.Text
				return true
			})
			got := answer.Choices[0]
			if *got.Text != want || streamed != want {
				t.Errorf("%+v:\nwhole    %q\nstreamed %q\nwant     %q", c, *got.Text, streamed, want)
			}
			if last.FinishReason == nil || *last.FinishReason != got.FinishReason || last.StopReason != got.StopReason {
				t.Errorf("%+v: streamed it ends by %v (%v), whole by %v (%v)", c, last.FinishReason, last.StopReason, got.FinishReason, got.StopReason)
			}
			why := engine.FinishStop
			if reason == "" {
				why = engine.FinishLength
			}
			said, isText := got.StopReason.(string)
			if got.FinishReason != why || isText && said != reason || !isText && reason != "" && reason != "id" {
				t.Errorf("%+v: it ends by %v (%v), want %v (%q)", c, got.FinishReason, got.StopReason, why, reason)
			}
		}
		if ended[true] < rounds/3 || ended[false] == 0 {
			t.Errorf("%v answers were stopped, so too few of one kind were tested", ended)
		}
	}
}

func encode(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
