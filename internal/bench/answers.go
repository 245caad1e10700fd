package bench

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
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
		ids := append(slices.Clone(a.Prompt), got...)
		_, err = m.eng.Logits(ctx, engine.LogitsRequest{TokenIDs: ids[:len(ids)-1], From: n - 1}, func(pos int, row []float32) error {
			id := ids[pos+1]
			other := float32(0)
			for i, v := range row[:vocab] {
				if int32(i) != id && (v > other || i == 0 || id == 0 && i == 1) {
					other = v
				}
			}
			a.Margins = append(a.Margins, float64(row[id])-float64(other))
			return nil
		})
		if err != nil {
			return nil, err
		}
		answers = append(answers, a)
	}
	return answers, nil
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
