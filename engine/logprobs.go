package engine

import (
	"strings"

	"github.com/pagelight/pagelight/internal/sample"
)

// describe is a token with its text and no probability.
func (t *Text) describe(id int32) TokenLogprob {
	lp := TokenLogprob{ID: id}
	if t.tok != nil {
		lp.Bytes = t.tok.AppendToken(nil, id, false)
		lp.Text = strings.ToValidUTF8(string(lp.Bytes), "\uFFFD")
	}
	return lp
}

// logprob says how probable id is by a row of the model's own logits, with the top most probable tokens beside it.
func (t *Text) logprob(row []float32, id int32, top int) (TokenLogprob, error) {
	p, err := sample.Logprobs(row, id, top)
	if err != nil {
		return TokenLogprob{}, err
	}
	lp := t.describe(id)
	lp.Logprob, lp.Rank = p.Logprob, p.Rank
	for i, alt := range p.Top {
		a := t.describe(alt.ID)
		a.Logprob, a.Rank = alt.Logprob, i+1
		lp.Top = append(lp.Top, a)
	}
	return lp, nil
}
