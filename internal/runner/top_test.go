package runner

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/pagelight/pagelight/internal/builtin"
	"github.com/pagelight/pagelight/internal/kvcache"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/sample"
	"github.com/pagelight/pagelight/internal/sched"
)

// Samplers draw the same tokens from candidates, or from the row that ReadLogits gives where these do not suffice, as from
// all logits; the largest logit and the sum are those of the row.
func TestCandidatesGiveWhatAllLogitsGive(t *testing.T) {
	src, err := builtin.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	const rows = 11
	numTokens := src.Config().VocabSize - 100
	for name, open := range devices(t) {
		t.Run(name, func(t *testing.T) {
			dev := open()
			defer dev.Close()
			r, err := Open(context.Background(), dev, src, Config{
				KV: quant.KVF16, Budget: 1 << 30, MaxModelLen: 64, MaxTokens: 16, MaxLogits: 16, MaxSeqs: 1, NumTokens: numTokens,
				Progress: func(string, int64, int64, string) {},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			q := &sched.Sequence{ID: "q", Tokens: make([]int32, rows), Table: make(kvcache.Table, 1)}
			for i := range q.Tokens {
				q.Tokens[i] = int32(1000 + 37*i*i)
			}
			plan := &sched.Plan{Chunks: []sched.Chunk{{Seq: q, Tokens: q.Tokens, Logits: rows}}, NumTokens: rows, NumLogits: rows}
			res, err := r.Step(context.Background(), plan, WantLogits)
			if err != nil {
				t.Fatal(err)
			}
			logits := slices.Clone(res.Logits)
			row := func(m int) []float32 { return logits[m*res.Vocab : (m+1)*res.Vocab] }
			total, sufficed := 0, map[string]int{}
			for round := range int64(6) {
				for name, p := range map[string]sample.Params{
					"greedy":      {TopP: 1, RepetitionPenalty: 1},
					"temperature": {Temperature: 0.9, TopP: 1, RepetitionPenalty: 1},
					"top_p":       {Temperature: 0.8, TopP: 0.8, RepetitionPenalty: 1},
					"top_k":       {Temperature: 1.2, TopP: 0.95, TopK: 40, RepetitionPenalty: 1},
					"min_p":       {Temperature: 1, TopP: 1, MinP: 0.05, RepetitionPenalty: 1},
					"penalties":   {Temperature: 1, TopP: 1, RepetitionPenalty: 1.3},
				} {
					some, all := make([]*sample.Sampler, rows), make([]*sample.Sampler, rows)
					draws := make([]sample.Draw, rows)
					for m := range rows {
						seed := 100*round + int64(m)
						p.Seed = &seed
						some[m], all[m] = sample.New(p, numTokens, 5), sample.New(p, numTokens, 5)
						draws[m], _ = some[m].Draw(TopK)
					}
					res, err := r.StepTop(context.Background(), plan, draws)
					if err != nil {
						t.Fatal(err)
					}
					total++
					for m, top := range res.Top {
						checkTop(t, row(m)[:numTokens], top, draws[m])
						got, ok, err := some[m].SampleTop(top)
						if ok {
							sufficed[name]++
						} else if err == nil {
							whole, err2 := r.ReadLogits(context.Background(), m)
							if err2 != nil {
								t.Fatal(err2)
							}
							if !slices.Equal(whole, row(m)) {
								t.Fatalf("row %d is not what it was", m)
							}
							got, err = some[m].Sample(whole)
						}
						want, err2 := all[m].Sample(row(m))
						if got != want || err != nil || err2 != nil {
							t.Errorf("%s, row %d: got %d, %v, want %d, %v", name, m, got, err, want, err2)
						}
					}
				}
			}
			t.Logf("of %d rows each, candidates suffice for %v", total/6*rows, fmt.Sprint(sufficed))
			if sufficed["greedy"] != 66 || sufficed["temperature"] < 64 || sufficed["top_k"] < 64 || sufficed["top_p"] < 33 || sufficed["min_p"] < 60 {
				t.Error("candidates seldom suffice")
			}
		})
	}
}

// checkTop holds the sums, and the candidates by logits, against the row.
func checkTop(t *testing.T, row []float32, top sample.Top, d sample.Draw) {
	t.Helper()
	if most := slices.Max(row); top.Max != most {
		t.Errorf("the largest logit is %v, want %v", top.Max, most)
	}
	for i, id := range top.IDs {
		if row[id] != top.Logits[i] {
			t.Errorf("token %d has the logit %v, want %v", id, top.Logits[i], row[id])
		}
	}
	if d.Race || d.InvTemperature == 0 {
		return
	}
	sum := 0.0
	for _, l := range row {
		sum += math.Exp(float64(l-top.Max) * float64(d.InvTemperature))
	}
	if math.Abs(top.Total-sum) > 1e-4*sum {
		t.Errorf("the sum is %v, want %v", top.Total, sum)
	}
	sorted := slices.Sorted(slices.Values(row))
	if least := top.Logits[len(top.Logits)-1]; least != sorted[len(sorted)-TopK] {
		t.Errorf("the last candidate has %v, want %v", least, sorted[len(sorted)-TopK])
	}
}
