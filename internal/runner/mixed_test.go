package runner

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu/gputest"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/sched"
)

// TestMixedSteps computes sequences in steps of prompts' chunks and single tokens of any lengths and order, on the kernels of GPUs.
// Every row of logits is near what the processor gives for the sequence alone: chunks begin in the middle of blocks, a sequence that
// was computed begins again, as after a preemption, and two share their first blocks, as by the prefix cache.
func TestMixedSteps(t *testing.T) {
	config := Config{KV: quant.KVF32, MaxModelLen: 512, MaxTokens: 64, MaxLogits: 64, MaxSeqs: 8}
	lengths := []int{330, 300, 17, 40, 1, 290}
	seqs := sequences(len(lengths), 352)
	seqs[1].Tokens = append(slices.Clone(seqs[0].Tokens[:64]), seqs[1].Tokens[64:]...) // the blocks too, once the first has them
	for i, q := range seqs {
		q.Tokens = q.Tokens[:lengths[i]]
	}
	want := make([][][]float32, len(seqs))
	dev := devices(t)["cpu"]()
	defer dev.Close()
	alone := openGolden(t, dev, "ernie", 0, config)
	for s, q := range seqs {
		for q.NumComputed < len(q.Tokens) {
			n := min(64, len(q.Tokens)-q.NumComputed)
			want[s] = append(want[s], stepRows(t, alone, planOf([]*sched.Sequence{q}, []int{n}))...)
			q.NumComputed += n
		}
		q.NumComputed = 0
	}

	hardware(&config)
	r := openGolden(t, gputest.Open(t), "ernie", 0, config)
	rng := rand.New(rand.NewPCG(3, 4))
	step := func(some []*sched.Sequence, chunks []int) {
		t.Helper()
		rows := stepRows(t, r, planOf(some, chunks))
		for i, q := range some {
			s := slices.Index(seqs, q)
			for range chunks[i] {
				largest, diff := 0.0, 0.0
				for j, v := range want[s][q.NumComputed] {
					largest, diff = max(largest, math.Abs(float64(v))), max(diff, math.Abs(float64(v-rows[0][j])))
				}
				if !(diff <= 5e-4*largest) {
					t.Fatalf("chunks %v: position %d of sequence %d is %.2g of %.2g off", chunks, q.NumComputed, s, diff, largest)
				}
				rows, q.NumComputed = rows[1:], q.NumComputed+1
			}
		}
	}
	for seqs[0].NumComputed < 64 {
		step(seqs[:1], []int{64})
	}
	copy(seqs[1].Table, seqs[0].Table[:4])
	seqs[1].NumComputed = 64
	again := true
	for {
		var some []*sched.Sequence
		var chunks []int
		room := r.Limits().MaxTokens
		for _, s := range rng.Perm(len(seqs)) {
			q := seqs[s]
			if left := min(room, len(q.Tokens)-q.NumComputed); left > 0 && rng.IntN(4) > 0 {
				n := 1 + rng.IntN(min(left, []int{1, 24, 64}[rng.IntN(3)]))
				some, chunks, room = append(some, q), append(chunks, n), room-n
			}
		}
		if len(some) > 0 {
			step(some, chunks)
		}
		if again && seqs[5].NumComputed > 200 {
			again, seqs[5].NumComputed = false, 160
		}
		if !slices.ContainsFunc(seqs, func(q *sched.Sequence) bool { return q.NumComputed < len(q.Tokens) }) {
			break
		}
	}
}
