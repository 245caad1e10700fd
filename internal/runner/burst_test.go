package runner

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu/gputest"
	"github.com/pagelight/pagelight/internal/kvcache"
	"github.com/pagelight/pagelight/internal/model"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/sample"
	"github.com/pagelight/pagelight/internal/sched"
)

// startOf computes the prompts of some sequences, each with room for more tokens, and gives them their first token.
func startOf(t *testing.T, r *Runner, rows, room int) []*sched.Sequence {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	var seqs []*sched.Sequence
	block := 0
	for i := range rows {
		q := &sched.Sequence{ID: fmt.Sprint(i)}
		for range 3 + 5*i {
			q.Tokens = append(q.Tokens, int32(rng.IntN(r.cfg.VocabSize)))
		}
		for range kvcache.NumBlocksFor(len(q.Tokens) + room) {
			q.Table = append(q.Table, kvcache.BlockID(block))
			block++
		}
		p := &sched.Plan{Chunks: []sched.Chunk{{Seq: q, Tokens: q.Tokens, Logits: 1}}, NumTokens: len(q.Tokens), NumLogits: 1}
		res, err := r.Step(context.Background(), p, WantIDs)
		if err != nil {
			t.Fatal(err)
		}
		q.NumComputed = len(q.Tokens)
		q.Tokens = append(q.Tokens, res.IDs[0])
		seqs = append(seqs, q)
	}
	return seqs
}

// decodePlan is a step of the last token of each sequence.
func decodePlan(seqs []*sched.Sequence) *sched.Plan {
	p := &sched.Plan{NumTokens: len(seqs), NumLogits: len(seqs)}
	for _, q := range seqs {
		n := len(q.Tokens) - 1
		p.Chunks = append(p.Chunks, sched.Chunk{Seq: q, Tokens: q.Tokens[n:], Start: n, Logits: 1})
	}
	return p
}

// TestBurstsGiveWhatStepsGive decodes the same prompts step by step and in bursts, several of them under way.
func TestBurstsGiveWhatStepsGive(t *testing.T) {
	const tokens = 40
	for name, openDevice := range devices(t) {
		for _, choice := range []Choice{ChooseBest, ChooseDrawn, ChooseNuclei} {
			t.Run(fmt.Sprintf("%s/%d", name, choice), func(t *testing.T) {
				dev := openDevice()
				defer dev.Close()
				r := openGolden(t, dev, "ernie", 0, Config{KV: quant.KVF32, MaxTokens: 64, MaxLogits: 5, MaxSeqs: 5, NumTokens: 500})
				defer r.Close()
				samplers := func() (list []*sample.Sampler) {
					for i := range 3 {
						p, seed := sample.Default(), int64(i)
						p.Seed, p.Temperature = &seed, 0
						if choice != ChooseBest && i > 0 {
							p.Temperature = 1.2
							if choice == ChooseNuclei {
								p.TopP = 1 - 0.2*float64(i)
							}
						}
						list = append(list, sample.New(p, 500))
					}
					return list
				}
				want := stepwise(t, r, startOf(t, r, 3, tokens), samplers(), tokens)
				got := inBursts(t, r, startOf(t, r, 3, tokens), samplers(), tokens, choice)
				for i := range want {
					if !slices.Equal(got[i], want[i]) {
						t.Errorf("row %d: bursts gave %v, steps %v", i, got[i], want[i])
					}
				}
			})
		}
	}
}

// TestBurstsGoFromTrunkToTrunk: the kernels of GPUs for contexts that are short until a burst passes their end.
func TestBurstsGoFromTrunkToTrunk(t *testing.T) {
	const tokens, short = 40, 29
	for _, rows := range []int{1, 3} {
		config := Config{KV: quant.KVF32, MaxTokens: 64, MaxLogits: 4, MaxSeqs: 4, NumTokens: 500}
		hardware(&config)
		config.Tuning.ShortContext = short
		r := openGolden(t, gputest.Open(t), "ernie", 0, config)
		samplers := func() (list []*sample.Sampler) {
			for range rows {
				p := sample.Default()
				p.Temperature = 0
				list = append(list, sample.New(p, 500))
			}
			return list
		}
		want := stepwise(t, r, startOf(t, r, rows, tokens), samplers(), tokens)
		got := inBursts(t, r, startOf(t, r, rows, tokens), samplers(), tokens, ChooseBest)
		for i := range want {
			if !slices.Equal(got[i], want[i]) {
				t.Errorf("row %d of %d: %v in bursts, %v step by step", i, rows, got[i], want[i])
			}
		}
		for _, trunk := range []model.Trunk{model.ShortTrunk, model.FewTrunk} {
			if r.trunks[trunkKey{rows: rows, trunk: trunk}] == nil {
				t.Errorf("%d rows never took trunk %d", rows, trunk)
			}
		}
	}
}

// stepwise decodes one token at a time, chosen on the host.
func stepwise(t *testing.T, r *Runner, seqs []*sched.Sequence, samplers []*sample.Sampler, tokens int) (all [][]int32) {
	t.Helper()
	for range tokens {
		res, err := r.Step(context.Background(), decodePlan(seqs), WantLogits)
		if err != nil {
			t.Fatal(err)
		}
		for i, q := range seqs {
			id, err := samplers[i].Sample(res.Row(i))
			if err != nil {
				t.Fatal(err)
			}
			samplers[i].Accept(id)
			q.Tokens = append(q.Tokens, id)
		}
	}
	for _, q := range seqs {
		all = append(all, q.Tokens)
	}
	return all
}

// inBursts decodes in bursts of 1 to MaxBurst steps. A row that the device cannot decide is decided by the host from its logits.
func inBursts(t *testing.T, r *Runner, seqs []*sched.Sequence, samplers []*sample.Sampler, tokens int, choice Choice) (all [][]int32) {
	t.Helper()
	ctx := context.Background()
	start := make([]int, len(seqs))
	for i, q := range seqs {
		start[i] = len(q.Tokens)
	}
	short := func() bool {
		for i, q := range seqs {
			if len(q.Tokens) < start[i]+tokens {
				return true
			}
		}
		return false
	}
	for short() {
		rows := make([]BurstRow, len(seqs))
		for i, q := range seqs {
			rows[i].Left = start[i] + tokens - len(q.Tokens)
			rows[i].Draw, _ = samplers[i].Device()
		}
		p := decodePlan(seqs)
		if err := r.Begin(p, rows, choice); err != nil {
			t.Fatal(err)
		}
		stalled := make([]bool, len(seqs))
		under := 0
		submit := func(n int) {
			if n = min(n, r.Room()); n > 0 {
				if err := r.Burst(p, n); err != nil {
					t.Fatal(err)
				}
				under++
			}
		}
		collect := func() {
			b, err := r.Collect(ctx)
			under--
			if err != nil {
				t.Fatal(err)
			}
			for s := range b.Steps {
				for i, q := range seqs {
					switch id := b.At(s, i); {
					case id == Undecided:
						stalled[i] = true
					case id == NoToken && (stalled[i] || len(q.Tokens) == start[i]+tokens):
					case id < 0 || stalled[i]:
						t.Fatalf("row %d, step %d: %d", i, s, id)
					default:
						samplers[i].Skip(1)
						samplers[i].Accept(id)
						q.Tokens = append(q.Tokens, id)
					}
				}
			}
		}
		submit(1)
		submit(3)
		for n := 1; n < 3*tokens && !slices.Contains(stalled, true) && short(); n *= 2 {
			submit(min(n, MaxBurst))
			collect()
		}
		for under > 0 {
			collect()
		}
		for i, q := range seqs {
			if !stalled[i] {
				continue
			}
			logits, err := r.ReadLogits(ctx, i)
			if err != nil {
				t.Fatal(err)
			}
			id, err := samplers[i].Sample(logits)
			if err != nil {
				t.Fatal(err)
			}
			samplers[i].Accept(id)
			q.Tokens = append(q.Tokens, id)
		}
	}
	for _, q := range seqs {
		all = append(all, q.Tokens)
	}
	return all
}
