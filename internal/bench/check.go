package bench

import (
	"context"
	"fmt"
)

// Verdicts of a Check.
const (
	Passed      = "passed"
	Failed      = "failed"
	Approximate = "approximate" // tokens may differ: KV caches of bytes are judged by perplexity
)

// leastMargin is the narrowest margin at which another token is a fault: sums in another order move logits by less, and storing
// keys and values in 16 bits by more than in 32.
func leastMargin(kv string) float64 {
	if kv == "f32" {
		return 0.02
	}
	return 0.15
}

// check asks for answers that are known, one at a time and as many at once as tests will time.
func (m *measurement) check(ctx context.Context, tests []test) error {
	c := &m.run.Check
	c.LeastMargin = leastMargin(m.run.KV)
	info := m.eng.Info()
	source, answers := m.known(info.Model, info.Weights)
	c.KnownAnswer, c.Source = answers != nil, source
	m.tell(DoingCheck, "", 0)
	if !c.KnownAnswer {
		c.Source = "the engine's own answers, one at a time, and their logits: no known answers"
		own, err := m.own(ctx)
		if err != nil {
			return err
		}
		answers = own
	}
	for i := range answers {
		if a := &answers[i]; len(a.Prompt)+len(a.Greedy) <= info.MaxModelLen {
			m.cases = append(m.cases, *a)
		}
	}
	for i := range m.cases {
		a := &m.cases[i]
		if !c.KnownAnswer {
			m.compareLogits(a)
		}
		got, _, err := m.ask(ctx, a.Prompt, len(a.Greedy))
		if err != nil {
			return err
		}
		m.compare("batch 1", a, got)
	}
	for _, t := range tests {
		if t.Kind == KindBatch && t.Batch > 1 {
			if err := m.checkBatch(ctx, t.Batch); err != nil {
				return err
			}
		}
	}
	return m.verdict()
}

// checkBatch asks for n answers at once, each case again and again.
func (m *measurement) checkBatch(ctx context.Context, n int) error {
	var few []*Answer
	for i := range m.cases {
		if len(m.cases[i].Prompt) <= BatchPrompt {
			few = append(few, &m.cases[i])
		}
	}
	if len(few) == 0 {
		return nil
	}
	few = few[max(0, len(few)-n):] // the longest say the most
	prompts, steps := make([][]int32, n), 0
	for i := range prompts {
		prompts[i], steps = few[i%len(few)].Prompt, max(steps, len(few[i%len(few)].Greedy))
	}
	got, err := m.askAll(ctx, prompts, steps)
	if err != nil {
		return err
	}
	for i, ids := range got {
		m.compare(fmt.Sprintf("batch %d", n), few[i%len(few)], ids)
	}
	return nil
}

// compare notes whether an answer is right at a setting.
func (m *measurement) compare(setting string, a *Answer, got []int32) {
	n := min(a.comparable(m.run.Check.LeastMargin), len(got))
	c := m.caseOf(setting, a, n)
	c.Answers++
	for i := range n {
		if got[i] != a.Greedy[i] {
			m.fault(c, i, got[i], a.Greedy[i])
			return
		}
	}
}

// compareLogits notes whether the tokens of an answer that is the engine's own are those that its logits call for.
func (m *measurement) compareLogits(a *Answer) {
	least := m.run.Check.LeastMargin
	n := a.comparable(least)
	c := m.caseOf("logits", a, n)
	c.Answers++
	if n < len(a.Margins) && !(a.Margins[n] >= -least) {
		m.fault(c, n, a.Greedy[n], -1)
	}
}

func (m *measurement) caseOf(setting string, a *Answer, compared int) *CheckCase {
	list := &m.run.Check.Cases
	for i := range *list {
		if c := &(*list)[i]; c.Setting == setting && c.Case == a.Name {
			return c
		}
	}
	*list = append(*list, CheckCase{Setting: setting, Case: a.Name, Prompt: len(a.Prompt), Compared: compared})
	return &(*list)[len(*list)-1]
}

func (m *measurement) fault(c *CheckCase, at int, got, want int32) {
	c.Wrong++
	if c.Wrong > 1 {
		return
	}
	c.At, c.Got, c.Want = at, got, want
	if m.wrong == nil && !m.approx {
		m.wrong = fmt.Errorf("%w: %s, KV %s, case %s: token %d is %d, %d is right", ErrWrong, c.Setting, m.run.KV, c.Case, at, got, want)
		if want < 0 {
			m.wrong = fmt.Errorf("%w: %s, KV %s, case %s: token %d is %d, which its logits do not call for", ErrWrong, c.Setting, m.run.KV, c.Case, at, got)
		}
	}
}

// verdict is the error of a run whose answers are wrong.
func (m *measurement) verdict() error {
	switch {
	case m.wrong != nil:
		m.run.Check.Verdict = Failed
	case m.approx:
		m.run.Check.Verdict = Approximate
	default:
		m.run.Check.Verdict = Passed
	}
	return m.wrong
}
