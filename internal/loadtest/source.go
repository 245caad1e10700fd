package loadtest

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
)

// Request is what one request asks. One of Text, IDs and Messages is set.
type Request struct {
	Text     string
	IDs      []int32
	Messages json.RawMessage // of a chat
	Input    int             // tokens that the prompt is meant to have; 0 where nobody knows
	Output   int             // tokens that the answer may have at most
}

func (r *Request) wanted() TokenCounts { return TokenCounts{Input: r.Input, Output: r.Output} }

// Source gives the requests of a measurement. Request(i) depends on i and the source only, whoever asks and in whatever
// order; i below 0 are requests of the warm-up. It is called by many goroutines.
type Source interface {
	Request(i int) Request
}

// RequestOptions are what all requests have in common.
type RequestOptions struct {
	Temperature *float64 // nil leaves it to the server
	IgnoreEOS   bool
	Seed        uint64                     // where answers are sampled (Temperature is set and not 0), request i asks for seed Seed+i
	Extra       map[string]json.RawMessage // further fields of the body; they win
}

// body writes a request's body.
func (c *Client) body(r Request, o RequestOptions, i int) []byte {
	b := map[string]any{
		"model": c.opt.Model, "stream": true, "stream_options": map[string]bool{"include_usage": true},
	}
	if c.opt.Backend == Chat {
		b["max_completion_tokens"] = r.Output
		b["messages"] = []map[string]string{{"role": "user", "content": r.Text}}
		if r.Messages != nil {
			b["messages"] = r.Messages
		}
	} else {
		b["max_tokens"] = r.Output
		b["prompt"] = r.Text
		if r.IDs != nil {
			b["prompt"] = r.IDs
		}
	}
	if o.Temperature != nil {
		b["temperature"] = *o.Temperature
		if *o.Temperature != 0 {
			b["seed"] = (o.Seed + uint64(i)) & math.MaxInt64
		}
	}
	if o.IgnoreEOS {
		b["ignore_eos"] = true
	}
	for name, value := range o.Extra {
		b[name] = value
	}
	return marshal(b)
}

// Random makes prompts of random words: a prefix that requests share, then words of their own.
type Random struct {
	Vocabulary *Vocabulary
	Input      Lengths // tokens of a prompt after its prefix, with what the server adds (a chat template)
	Output     Lengths
	// PrefixTokens is the length of the prefix. Of all requests, a share of PrefixShare (0 to 1) begin with one of Prefixes
	// shared ones, and the others with one of their own, so that all prompts are equally long. The warm-up shares none, or
	// the measurement would find its prefixes in the cache.
	PrefixTokens int
	PrefixShare  float64
	Prefixes     int
	Seed         uint64
}

// Request makes request i.
func (s *Random) Request(i int) Request {
	rng := newRand(s.Seed, streamRequests+uint64(i))
	v := s.Vocabulary
	r := Request{Input: s.PrefixTokens + s.Input.Draw(rng), Output: s.Output.Draw(rng)}
	var prefix []int
	if s.PrefixTokens > 0 {
		from := rng // a prefix of its own
		if i >= 0 && rng.Float64() < s.PrefixShare {
			from = newRand(s.Seed, streamPrefixes+rng.Uint64N(uint64(max(1, s.Prefixes))))
		}
		prefix = v.draw(from, v.words(s.PrefixTokens))
	}
	words := append(prefix, v.draw(rng, max(1, v.words(r.Input-v.Overhead)-len(prefix)))...)
	if v.IDs != nil {
		r.IDs = make([]int32, len(words))
		for k, w := range words {
			r.IDs[k] = v.IDs[w]
		}
		return r
	}
	r.Text = v.text(words)
	return r
}

// Vocabulary is what random prompts are made of.
type Vocabulary struct {
	Words []string
	// IDs, when not nil, are the words as token ids, and prompts are lists of ids.
	IDs           []int32
	TokensPerWord float64 // in a text; 1 with IDs
	Overhead      int     // tokens that the server adds to every prompt: a first token, a chat template
	Notes         []string
}

// words is how many words make a text of so many tokens.
func (v *Vocabulary) words(tokens int) int {
	return max(0, int(math.Round(float64(tokens)/v.TokensPerWord)))
}

// draw gives n random words, as positions in Words.
func (v *Vocabulary) draw(rng *rand.Rand, n int) []int {
	words := make([]int, n)
	for i := range words {
		words[i] = rng.IntN(len(v.Words))
	}
	return words
}

func (v *Vocabulary) text(words []int) string {
	var b strings.Builder
	for _, w := range words {
		b.WriteByte(' ')
		b.WriteString(v.Words[w])
	}
	return b.String()
}
