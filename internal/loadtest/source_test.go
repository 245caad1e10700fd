package loadtest

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

func TestLengths(t *testing.T) {
	for _, c := range []struct {
		text           string
		lo, hi         int
		mean, sd, slop float64 // of the distribution; slop is four standard errors and the rounding
	}{
		{"256", 256, 256, 256, 0, 0},
		{"100-300", 100, 300, 200, 58.02, 2},
		{"uniform:1-2", 1, 2, 1.5, 0.5, 0.02},
		{"normal:256,64,1-1024", 1, 1024, 256, 64, 2},
		{"normal:100,0", 100, 100, 100, 0, 0},
		{"lognormal:256,200", 1, maxLength, 256, 200, 12},
		{"lognormal:256,1", 250, 262, 256, 1.04, 0.1},
		{"normal:10,5,8-12", 8, 12, 10, 1.41, 0.1},
	} {
		l, err := ParseLengths(c.text)
		if err != nil || l.String() != c.text {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		const n = 20_000
		rng := newRand(1, 0)
		var sum, squares float64
		for range n {
			x := l.Draw(rng)
			if x < c.lo || x > c.hi {
				t.Fatalf("%s gives %d", c.text, x)
			}
			sum += float64(x)
			squares += float64(x) * float64(x)
		}
		mean := sum / n
		if sd := math.Sqrt(squares/n - mean*mean); math.Abs(mean-c.mean) > c.slop || math.Abs(sd-c.sd) > c.slop+0.01*c.sd {
			t.Errorf("%s: mean %.2f, deviation %.2f; want %g and %g", c.text, mean, sd, c.mean, c.sd)
		}
	}
	for _, bad := range []string{
		"", "0", "-5", "1.5", "x", "5-", "-", "9-5", "0-5", "uniform:5", "uniform:", "normal:", "normal:5", "normal:5,-1", "normal:0,1", "normal:nan,1",
		"normal:5,inf", "normal:5,1,", "normal:50,1,1-10", "normal:5,1,1-10,3", "poisson:5", "1-99999999999", "99999999",
	} {
		if l, err := ParseLengths(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, l)
		}
	}
	if l, err := FixedLength(100).Spread(0.25); err != nil || l.String() != "75-125" {
		t.Errorf("%v, %v", l, err)
	}
	if l, err := FixedLength(1).Spread(0.5); err != nil || l.String() != "1-2" {
		t.Errorf("%v, %v", l, err)
	}
	for _, r := range []float64{-0.1, 1, math.NaN()} {
		if _, err := FixedLength(100).Spread(r); err == nil {
			t.Errorf("a range ratio of %g", r)
		}
	}
	if l, _ := ParseLengths("1-5"); true {
		if _, err := l.Spread(0.5); err == nil {
			t.Error("a range is spread")
		}
	}
}

func idVocabulary() *Vocabulary {
	v := &Vocabulary{Words: candidates, TokensPerWord: 1}
	for i := range candidates {
		v.IDs = append(v.IDs, int32(1000+i))
	}
	return v
}

func TestRandomPrompts(t *testing.T) {
	in, _ := ParseLengths("20-40")
	out, _ := ParseLengths("1-9")
	s := &Random{Vocabulary: idVocabulary(), Input: in, Output: out, PrefixTokens: 50, PrefixShare: 0.75, Prefixes: 3, Seed: 5}
	const n = 2000
	prefixes := map[string]int{}
	for i := range n {
		r := s.Request(i)
		if !reflect.DeepEqual(r, s.Request(i)) {
			t.Fatalf("request %d differs from itself", i)
		}
		if len(r.IDs) != r.Input || r.Input < 70 || r.Input > 90 || r.Output < 1 || r.Output > 9 || r.Text != "" {
			t.Fatalf("request %d: %d ids, %+v", i, len(r.IDs), r.wanted())
		}
		prefixes[fmt.Sprint(r.IDs[:50])]++
	}
	shared, alone := 0, 0
	for _, k := range prefixes {
		if k == 1 {
			alone++
		} else {
			shared += k
			if math.Abs(float64(k)-n*0.75/3) > 4*math.Sqrt(n*0.25*0.75) {
				t.Errorf("a prefix is shared by %d of %d requests", k, n)
			}
		}
	}
	if len(prefixes)-alone != 3 || math.Abs(float64(shared)-n*0.75) > 4*math.Sqrt(n*0.75*0.25) {
		t.Errorf("%d prefixes are shared by %d requests, %d stand alone", len(prefixes)-alone, shared, alone)
	}
	for i := range 200 {
		if r := s.Request(-1 - i); prefixes[fmt.Sprint(r.IDs[:50])] != 0 {
			t.Errorf("the warm-up has a prefix of the measurement")
		}
	}
	other := *s
	other.Seed = 6
	if reflect.DeepEqual(other.Request(0), s.Request(0)) {
		t.Error("another seed gives the same request")
	}
}

// tokenizer is a fake's: each word is so many tokens.
func tokenizer(perWord func(word string) int) func(w http.ResponseWriter, r *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Prompt string
		}
		if r.URL.Path != "/tokenize" || json.NewDecoder(r.Body).Decode(&body) != nil {
			http.NotFound(w, r)
			return
		}
		ids := []int{}
		for word := range strings.FieldsSeq(body.Prompt) {
			for k := range perWord(word) {
				ids = append(ids, 10*slices.Index(candidates, word)+k)
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"count": len(ids), "tokens": ids})
	}
}

// counting answers with the usage that a server with such a tokenizer would give, and remembers it.
func counting(perWord func(string) int, overhead int, counts *[]int) func(int, *http.Request, map[string]any) plan {
	return func(_ int, _ *http.Request, body map[string]any) plan {
		n := overhead
		text, ok := body["prompt"].(string)
		if m, chat := body["messages"].([]any); chat {
			text, ok = m[0].(map[string]any)["content"].(string), true
		}
		if ok {
			for word := range strings.FieldsSeq(text) {
				n += perWord(word)
			}
		} else {
			n += len(body["prompt"].([]any))
		}
		*counts = append(*counts, n)
		return plan{tokens: 1, gap: 0, then: fmt.Sprintf(`data: {"choices":[{"text":"","finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":1}}`+"\n\ndata: [DONE]\n\n", n)}
	}
}

func one(string) int { return 1 }

// later makes words two tokens that are not among the first.
func later(word string) int { return 1 + min(1, slices.Index(candidates, word)/fewWords) }

// mixed makes every third word two tokens.
func mixed(word string) int { return 1 + min(1, slices.Index(candidates, word)%3%2) }

func TestCalibrate(t *testing.T) {
	refuseIDs := func(inner func(int, *http.Request, map[string]any) plan) func(int, *http.Request, map[string]any) plan {
		return func(n int, r *http.Request, body map[string]any) plan {
			if _, ok := body["prompt"].([]any); ok {
				return plan{status: 400, body: `{"error":{"message":"no token ids"}}`}
			}
			return inner(n, r, body)
		}
	}
	for name, c := range map[string]struct {
		backend  Backend
		format   Format
		perWord  func(string) int
		tokenize bool
		refuse   bool
		overhead int
		ids      bool
		slop     int // in tokens, of prompts of 200
	}{
		"ids":                       {Completions, FormatAuto, one, true, false, 0, true, 0},
		"ids, some words":           {Completions, FormatIDs, mixed, true, false, 0, true, 0},
		"ids and a first token":     {Completions, FormatAuto, mixed, true, false, 1, true, 0},
		"ids refused":               {Completions, FormatAuto, mixed, true, true, 1, false, 0},
		"text by choice":            {Completions, FormatText, mixed, true, false, 3, false, 0},
		"chat":                      {Chat, FormatAuto, mixed, true, false, 23, false, 0},
		"chat, nothing to tokenize": {Chat, FormatAuto, one, false, false, 23, false, 0},
		"text by usage, exactly":    {Completions, FormatAuto, later, false, false, 2, false, 0},
		"text by usage":             {Completions, FormatAuto, mixed, false, false, 2, false, 30},
	} {
		synctest.Test(t, func(t *testing.T) {
			var counts []int
			f := &fake{answer: counting(c.perWord, c.overhead, &counts)}
			if c.refuse {
				f.answer = refuseIDs(f.answer)
			}
			if c.tokenize {
				f.other = tokenizer(c.perWord)
			}
			client := f.start(t, c.backend)
			v, err := Calibrate(t.Context(), client, c.format, 0)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			if (v.IDs != nil) != c.ids || (len(v.Notes) == 0) != (c.slop == 0) {
				t.Errorf("%s: ids %v, notes %q", name, v.IDs, v.Notes)
			}
			counts = nil
			s := &Random{Vocabulary: v, Input: FixedLength(150), Output: FixedLength(1), PrefixTokens: 50, PrefixShare: 1, Prefixes: 2}
			measure(t, Config{Client: client, Source: s, Requests: 20, Concurrency: 1})
			for _, n := range counts {
				if n < 200-c.slop || n > 200+c.slop {
					t.Errorf("%s: a prompt of %d tokens, want 200 within %d", name, n, c.slop)
				}
			}
			if len(counts) != 20 {
				t.Errorf("%s: %d requests", name, len(counts))
			}
		})
	}
}

// TestWordsWhoseTokenDependsOnWhereTheyStand are no words for prompts of a given length, although their number of tokens
// looks right.
func TestWordsWhoseTokenDependsOnWhereTheyStand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{other: func(w http.ResponseWriter, r *http.Request) {
			var body struct{ Prompt string }
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
				t.Error(err)
			}
			ids := []int{}
			for i, word := range strings.Fields(body.Prompt) {
				k := slices.Index(candidates, word)
				switch {
				case k == 0:
					k = 1000 + i // another one each time
				case i == 0:
					k += 500 // without a space before it, as many tokenizers have it
				}
				ids = append(ids, k)
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"tokens": ids})
		}}
		v := &Vocabulary{}
		ids, err := v.single(t.Context(), f.start(t, Completions))
		if err != nil || len(ids) != len(candidates)-1 || len(v.Words) != len(ids) || v.Words[0] != candidates[1] || ids[0] != 1 {
			t.Errorf("%v, %v, %v", v.Words, ids, err)
		}
	})
}

func TestCalibrateFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: always(plan{status: 401, body: `{"error":{"message":"wrong key"}}`})}
		c := f.start(t, Completions)
		if _, err := Calibrate(t.Context(), c, FormatAuto, 0); err == nil || !strings.Contains(err.Error(), "wrong key") {
			t.Errorf("%v", err)
		}
		if _, err := Calibrate(t.Context(), c, FormatIDs, 0); err == nil || !strings.Contains(err.Error(), "/tokenize") {
			t.Errorf("ids without a tokenizer: %v", err)
		}
		f.other = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }
		if _, err := Calibrate(t.Context(), c, FormatAuto, 0); err == nil || !strings.Contains(err.Error(), "http_500") {
			t.Errorf("a tokenizer that fails: %v", err)
		}
		f.other = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"tokens":[]}`) } // another kind of server
		f.answer = always(plan{tokens: 1, noUsage: true})
		if v, err := Calibrate(t.Context(), c, FormatAuto, 0); err != nil || v.IDs != nil || len(v.Notes) != 1 || v.TokensPerWord != 1.3 {
			t.Errorf("a server that tells nothing: %+v, %v", v, err)
		}
		f.answer = always(plan{first: hour, tokens: 1})
		if _, err := Calibrate(t.Context(), c, FormatAuto, 10*msec); err == nil || !strings.Contains(err.Error(), KindTimeout) {
			t.Errorf("a server that does not answer: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		if _, err := Calibrate(t.Context(), f.start(t, Chat), FormatIDs, 0); err == nil {
			t.Error("a chat of token ids")
		}
	})
}

const hour = 3600 * 1000 * msec

func TestDataset(t *testing.T) {
	const file = `{"prompt":"one","output_tokens":7,"extra":true}

{"prompt":[4,5,6]}
{"prompt":"three","messages":null}
`
	read := func(text string, b Backend, shuffle bool, seed uint64) (*Dataset, error) {
		return ReadDataset(strings.NewReader(text), b, FixedLength(9), shuffle, seed)
	}
	d, err := read(file, Completions, false, 0)
	if err != nil || d.Len() != 3 {
		t.Fatalf("%v", err)
	}
	want := []Request{{Text: "one", Output: 7}, {IDs: []int32{4, 5, 6}, Input: 3, Output: 9}, {Text: "three", Output: 9}}
	for i := range 7 {
		if got := d.Request(i); !reflect.DeepEqual(got, want[i%3]) {
			t.Errorf("request %d: %+v, want %+v", i, got, want[i%3])
		}
	}
	if got := d.Request(-1); !reflect.DeepEqual(got, want[2]) {
		t.Errorf("warm-up: %+v", got)
	}
	var many strings.Builder
	for i := range 50 {
		fmt.Fprintf(&many, "{\"prompt\":\"%d\"}\n", i)
	}
	texts := func(seed uint64) (all []string) {
		d, err := read(many.String(), Completions, true, seed)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			all = append(all, d.Request(i).Text)
		}
		return all
	}
	if a, b := texts(1), texts(1); !slices.Equal(a, b) || slices.Equal(a, texts(2)) || slices.IsSorted(a) {
		t.Error("the order does not follow from the seed")
	}
	if d, err = read(`{"messages":[{"role":"user","content":"hi"}]}`, Chat, false, 0); err != nil || string(d.Request(0).Messages) != `[{"role":"user","content":"hi"}]` {
		t.Errorf("%v", err)
	}
	for text, says := range map[string]string{
		"":                                      "no prompt",
		"\n{\"prompt\":":                        "line 2: no JSON object",
		`[]`:                                    "line 1: no JSON object",
		`{}`:                                    "neither",
		`{"prompt":""}`:                         "empty",
		`{"prompt":[]}`:                         "neither a text nor",
		`{"prompt":["a"]}`:                      "neither a text nor",
		`{"prompt":5}`:                          "neither a text nor",
		`{"prompt":"a","output_tokens":-1}`:     "output_tokens",
		`{"prompt":"a","messages":[{"a":"b"}]}`: "both",
		`{"messages":[{"role":"user"}]}`:        "openai-chat",
		`{"messages":"x"}`:                      "no list",
		"{\"prompt\":\"\xff\"}":                 "UTF-8",
	} {
		if _, err := read(text, Completions, false, 0); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
	if _, err := read(`{"prompt":[1]}`, Chat, false, 0); err == nil {
		t.Error("token ids in a chat")
	}
}
