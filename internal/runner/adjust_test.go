package runner

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/sample"
	"github.com/pagelight/pagelight/internal/sched"
)

// randomParams are parameters of every kind that a device can follow. likely are ids that the model would choose.
func randomParams(rng *rand.Rand, likely []int32) sample.Params {
	p, seed := sample.Default(), rng.Int64()
	p.Seed = &seed
	p.Temperature = []float64{0, 0, 0.7, 1, 1.3}[rng.IntN(5)]
	p.TopP = []float64{1, 1, 0.9}[rng.IntN(3)]
	p.TopK = []int{0, 0, 40}[rng.IntN(3)]
	if rng.IntN(4) == 0 {
		p.Temperature, p.TopP, p.TopK = 4, 0.45, 0 // so many may be kept that it is the host's to choose
	} else if rng.IntN(4) == 0 {
		return p // nothing changes its logits
	}
	p.RepetitionPenalty = []float64{1, 1.2, 0.8, 2}[rng.IntN(4)]
	p.FrequencyPenalty = []float64{0, 0.5, -0.3}[rng.IntN(3)]
	p.PresencePenalty = []float64{0, 0.7, -0.4}[rng.IntN(3)]
	if rng.IntN(2) == 0 {
		p.LogitBias = map[int32]float64{}
		for range 1 + rng.IntN(20) {
			p.LogitBias[rng.Int32N(500)] = rng.NormFloat64() * 3
		}
		p.LogitBias[likely[0]] = -2
	}
	if rng.IntN(2) == 0 {
		p.MinTokens, p.EndIDs = rng.IntN(40), append([]int32{rng.Int32N(500)}, likely...)
		if rng.IntN(2) == 0 { // an end comes as soon as it may
			p.LogitBias = map[int32]float64{p.EndIDs[0]: 60, p.EndIDs[1]: 3}
		}
	}
	return p
}

// TestAdjustedBurstsGiveWhatStepsGive computes sequences with all kinds of parameters, each alone and chosen from on the host, and then
// in series of bursts of some of them in any order, between single steps. So records are written, kept, told of tokens and dropped.
func TestAdjustedBurstsGiveWhatStepsGive(t *testing.T) {
	const rows, tokens, rounds = 5, 60, 4
	for name, openDevice := range devices(t) {
		t.Run(name, func(t *testing.T) {
			dev := openDevice()
			defer dev.Close()
			r := openGolden(t, dev, "ernie", 0, Config{
				KV: quant.KVF32, Deterministic: true, MaxTokens: 64, MaxLogits: rows, MaxSeqs: rows, NumTokens: 500,
			})
			if err := r.OpenAdjust(t.Context()); err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(5, 6))
			decided, asked := 0, 0
			for range rounds {
				m := &mixed{t: t, r: r, rng: rng}
				alone := startOf(t, r, rows, tokens)
				var want [][]int32
				for _, q := range alone {
					p := randomParams(rng, q.Tokens[len(q.Tokens)-1:])
					prompt := q.Tokens[:len(q.Tokens)-1]
					first := func() *sample.Sampler {
						s := sample.New(p, 500, prompt...)
						s.Accept(q.Tokens[len(prompt)])
						return s
					}
					m.samplers = append(m.samplers, first())
					want = append(want, stepwise(t, r, []*sched.Sequence{{Tokens: slices.Clone(q.Tokens), Table: q.Table}}, []*sample.Sampler{first()}, tokens)...)
				}
				m.seqs = startOf(t, r, rows, tokens)
				for i, q := range m.seqs {
					m.full = append(m.full, len(want[i]))
					if !slices.Equal(q.Tokens, want[i][:len(q.Tokens)]) {
						t.Fatal("the prompts differ")
					}
				}
				for m.turn() {
				}
				for i, q := range m.seqs {
					if !slices.Equal(q.Tokens, want[i]) {
						t.Errorf("row %d: bursts gave %v, steps %v", i, q.Tokens, want[i])
					}
				}
				decided, asked = decided+m.decided, asked+m.asked
			}
			if decided < rounds*rows*tokens/2 || asked < 20 {
				t.Errorf("the device decided %d of %d tokens, the host %d", decided, rounds*rows*tokens, asked)
			}
		})
	}
}

// mixed computes sequences in single steps and in bursts.
type mixed struct {
	t        *testing.T
	r        *Runner
	rng      *rand.Rand
	seqs     []*sched.Sequence
	samplers []*sample.Sampler
	full     []int // tokens that each is to have
	decided  int   // tokens that the device has chosen
	asked    int   // times that it asked the host about changed logits
}

// turn takes some of the sequences that are not full a few tokens further, and returns false when there is none.
func (m *mixed) turn() bool {
	var chosen []int
	for _, i := range m.rng.Perm(len(m.seqs)) {
		if len(m.seqs[i].Tokens) < m.full[i] && m.rng.IntN(3) > 0 {
			chosen = append(chosen, i)
		}
	}
	switch {
	case len(chosen) > 0 && m.rng.IntN(3) == 0:
		m.step(chosen)
	case len(chosen) > 0:
		m.series(chosen)
	}
	return slices.ContainsFunc(m.seqs, func(q *sched.Sequence) bool { return len(q.Tokens) < m.full[slices.Index(m.seqs, q)] })
}

func (m *mixed) plan(chosen []int) *sched.Plan {
	var seqs []*sched.Sequence
	for _, i := range chosen {
		seqs = append(seqs, m.seqs[i])
	}
	return decodePlan(seqs)
}

func (m *mixed) step(chosen []int) {
	res, err := m.r.Step(context.Background(), m.plan(chosen), WantLogits)
	if err != nil {
		m.t.Fatal(err)
	}
	for row, i := range chosen {
		id, err := m.samplers[i].Sample(res.Row(row))
		m.accept(i, id, err)
	}
}

func (m *mixed) accept(i int, id int32, err error) {
	if err != nil {
		m.t.Fatal(err)
	}
	m.samplers[i].Accept(id)
	m.seqs[i].Tokens = append(m.seqs[i].Tokens, id)
}

func (m *mixed) series(chosen []int) {
	p, choice := m.plan(chosen), ChooseBest
	rows := make([]BurstRow, len(chosen))
	for row, i := range chosen {
		d, ok := m.samplers[i].Device()
		if !ok {
			m.t.Fatalf("sequence %d cannot be chosen for", i)
		}
		rows[row] = BurstRow{Left: m.full[i] - len(m.seqs[i].Tokens), Draw: d}
		if d.Adjusts {
			rows[row].Adjust = m.samplers[i]
		}
		switch {
		case d.InvTemperature == 0:
		case d.TopP < 1:
			choice = ChooseNuclei
		default:
			choice = max(choice, ChooseDrawn)
		}
	}
	if err := m.r.Begin(p, rows, choice); err != nil {
		m.t.Fatal(err)
	}
	stalled, under := make([]bool, len(chosen)), 0
	for left := 1 + m.rng.IntN(4); left > 0 || under > 0; {
		if left > 0 && under < 2 {
			if err := m.r.Burst(p, min(m.r.Room(), 1+m.rng.IntN(6))); err != nil {
				m.t.Fatal(err)
			}
			left, under = left-1, under+1
			continue
		}
		b, err := m.r.Collect(context.Background())
		if err != nil {
			m.t.Fatal(err)
		}
		under--
		for s := range b.Steps {
			for row, i := range chosen {
				switch id := b.At(s, row); {
				case id == Undecided:
					stalled[row] = true
				case id == NoToken && (stalled[row] || len(m.seqs[i].Tokens) == m.full[i]):
				default:
					m.samplers[i].Skip(1)
					m.accept(i, id, nil)
					m.decided++
				}
			}
		}
	}
	for row, i := range chosen {
		if !stalled[row] {
			continue
		}
		logits, err := m.r.ReadLogits(context.Background(), row)
		if err != nil {
			m.t.Fatal(err)
		}
		choose := m.samplers[i].Sample
		if rows[row].Adjust != nil {
			choose, m.asked = m.samplers[i].SampleAdjusted, m.asked+1
		}
		id, err := choose(logits)
		m.accept(i, id, err)
	}
}
