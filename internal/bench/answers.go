package bench

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/pagelight/pagelight/engine"
)

// fullShape is what transformers gives in fp32 for the synthetic model: greedy tokens and their margins.
//
//go:embed full-shape.json
var fullShape []byte

// fullShapeModel is the model that fullShape is about.
const fullShapeModel = "synthetic:ernie-4.5-0.3b"

// Answer is a prompt with the greedy tokens that follow it.
type Answer struct {
	Name   string
	Prompt []int32
	Greedy []int32
	// Margins are the distances of the two best logits at each of Greedy. Where one is narrow, a sum in another order may choose
	// otherwise, and what follows then is another text.
	Margins []float64
}

// comparable is the number of tokens before the first margin below least.
func (a *Answer) comparable(least float64) int {
	if i := slices.IndexFunc(a.Margins, func(m float64) bool { return m < least }); i >= 0 {
		return i
	}
	return len(a.Margins)
}

// Known gives the answers of a model that are known from elsewhere, none for most models. Those of the synthetic model hold for
// weights as they are and in 4 bits, which lose nothing of it.
func Known(model, weights string) (source string, answers []Answer) {
	if model != fullShapeModel {
		return "", nil
	}
	for _, f := range strings.Split(weights, ", ") {
		if f != "bf16" && f != "f32" && !strings.HasPrefix(f, "q4g") {
			return "", nil
		}
	}
	var f struct {
		Reference string `json:"reference"`
		Cases     []struct {
			Name    string    `json:"name"`
			N       int       `json:"n"`
			Greedy  []int32   `json:"greedy"`
			Margins []float64 `json:"margins"`
		} `json:"cases"`
	}
	if err := json.Unmarshal(fullShape, &f); err != nil {
		panic("BUG: bench: full-shape.json: " + err.Error())
	}
	for _, c := range f.Cases {
		answers = append(answers, Answer{Name: c.Name, Prompt: prompt(c.Name, c.N, 103424), Greedy: c.Greedy, Margins: c.Margins})
	}
	return f.Reference, answers
}

// prompt is n ids below vocab that depend on the name alone, by the rule of the synthetic model's cases: ids[i] is
// h(i) % vocab, where h is that of the model's weights (weights/synthetic.go) seeded by "case NAME".
func prompt(name string, n, vocab int) []int32 {
	const offset, prime, gamma = 0xCBF29CE484222325, 0x100000001B3, 0x9E3779B97F4A7C15
	seed := uint64(offset) // FNV-1a
	for _, b := range []byte("case " + name) {
		seed = (seed ^ uint64(b)) * prime
	}
	ids := make([]int32, n)
	for i := range ids {
		z := seed + uint64(i+1)*gamma // splitmix64
		z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		ids[i] = int32((z ^ z>>31) % uint64(vocab))
	}
	return ids
}

// ownLengths are the prompts of models without known answers.
var ownLengths = []struct {
	name string
	n    int
}{{"one", 1}, {"short", 33}, {"block", BatchPrompt}}

// ownSteps is how many tokens of them are compared.
const ownSteps = 24

// own gives the engine's own answers, one at a time, with the margins of their logits. An answer that the logits contradict by
// more than least is an error: tokens found on the device and logits read from it must tell the same.
func (m *measurement) own(ctx context.Context) ([]Answer, error) {
	var answers []Answer
	vocab := tokens(m.eng)
	for _, c := range ownLengths {
		n := min(c.n, m.eng.Info().MaxModelLen-ownSteps)
		if n < 1 {
			return nil, &engine.ParamError{Field: "max_model_len", Reason: fmt.Sprintf("must be at least %d, got %d", ownSteps+1, m.eng.Info().MaxModelLen)}
		}
		a := Answer{Name: c.name, Prompt: prompt(c.name, n, vocab)}
		got, _, err := m.ask(ctx, a.Prompt, ownSteps)
		if err != nil {
			return nil, err
		}
		a.Greedy = got
		if a.Margins, err = m.margins(ctx, a.Prompt, got); err != nil {
			return nil, err
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// margins are by how much each token of an answer is better than the best other one, by the logits that the whole text has when it
// is computed as a prompt.
func (m *measurement) margins(ctx context.Context, prompt, answer []int32) (margins []float64, err error) {
	vocab, ids := tokens(m.eng), append(slices.Clone(prompt), answer...)
	_, err = m.eng.Logits(ctx, engine.LogitsRequest{TokenIDs: ids[:len(ids)-1], From: len(prompt) - 1}, func(pos int, row []float32) error {
		id, other := ids[pos+1], math.Inf(-1)
		for i, v := range row[:vocab] {
			if int32(i) != id {
				other = max(other, float64(v))
			}
		}
		margins = append(margins, float64(row[id])-other)
		return nil
	})
	return margins, err
}

// audit holds all tokens of an answer to the logits of its own text, once for each test: however far it is from what is known, each token
// must be the best one, or nearly so.
func (m *measurement) audit(ctx context.Context, setting string, prompt, answer []int32) error {
	if m.audited[setting] {
		return nil
	}
	m.audited[setting] = true
	margins, err := m.margins(ctx, prompt, answer)
	if err != nil {
		return err
	}
	c := m.caseOf(setting, &Answer{Name: "own logits", Prompt: prompt}, len(answer))
	c.Answers++
	for i, margin := range margins {
		if !(margin > -m.run.Check.LeastMargin) {
			m.fault(c, i, answer[i], -1)
			return nil
		}
	}
	return nil
}

// first is what may follow a prompt.
type first struct {
	best int32
	good []int32 // the best one, and those that are nearly as good
}

// compareFirst holds the first token after a prompt to the logits that the prompt has when it is computed token by token: as answers are,
// by other kernels than those of prompts. These logits are computed once for each test.
func (m *measurement) compareFirst(ctx context.Context, setting string, prompt []int32, got int32) error {
	want, ok := m.firsts[setting]
	if !ok {
		m.tell(DoingCheck, setting, 0)
		vocab, least := tokens(m.eng), m.run.Check.LeastMargin
		_, err := m.eng.Logits(ctx, engine.LogitsRequest{TokenIDs: prompt, From: len(prompt) - 1, Chunk: 1}, func(_ int, row []float32) error {
			row = row[:vocab]
			for i, v := range row {
				if v > row[want.best] {
					want.best = int32(i)
				}
			}
			for i, v := range row {
				if float64(row[want.best])-float64(v) < least {
					want.good = append(want.good, int32(i))
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		m.firsts[setting] = want
	}
	c := m.caseOf(setting, &Answer{Name: "token by token", Prompt: prompt}, 1)
	c.Answers++
	if !slices.Contains(want.good, got) {
		m.fault(c, 0, got, want.best)
	}
	return nil
}

// tokens is the number of ids that the engine chooses from: a vocabulary may be larger than its tokenizer.
func tokens(eng *engine.Engine) int {
	n := eng.Config().VocabSize
	if _, ok := eng.Piece(0); !ok {
		return n // no tokenizer
	}
	for n > 1 {
		if _, ok := eng.Piece(int32(n - 1)); ok {
			break
		}
		n--
	}
	return n
}
