package runner

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kvcache"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/sched"
	"github.com/pagelight/pagelight/internal/weights"
)

// longer is a source that says its model was made for longer contexts.
type longer struct {
	weights.Source
	cfg weights.Config
}

func (l *longer) Config() *weights.Config { return &l.cfg }

// openGolden opens one of the tiny checkpoints.
func openGolden(t testing.TB, dev gpu.Device, model string, maxPositions int, c Config) *Runner {
	t.Helper()
	src, err := weights.OpenDir(filepath.Join(goldens, model))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	l := &longer{Source: src, cfg: *src.Config()}
	l.cfg.MaxPositions = max(l.cfg.MaxPositions, maxPositions)
	return open(t, dev, l, c)
}

// planOf makes a plan of chunks, each beginning where its sequence's NumComputed says, with logits for all of its tokens.
func planOf(seqs []*sched.Sequence, lengths []int) *sched.Plan {
	p := &sched.Plan{}
	for i, q := range seqs {
		n := lengths[i]
		p.Chunks = append(p.Chunks, sched.Chunk{Seq: q, Start: q.NumComputed, Tokens: q.Tokens[q.NumComputed : q.NumComputed+n], Logits: n})
		p.NumTokens += n
		p.NumLogits += n
	}
	return p
}

// TestStepsOfAnyShapeGiveTheSameBits computes sequences one token at a time, each alone, and then again and again in steps of
// random chunks of random sequences in random order, with other blocks. Every row of logits must have the same bits.
func TestStepsOfAnyShapeGiveTheSameBits(t *testing.T) {
	for name, openDevice := range devices(t) {
		for _, model := range []string{"ernie", "ernie-bias-untied", "ernie-moe", "qwen3"} {
			for _, kv := range quant.KVTypes() {
				t.Run(fmt.Sprintf("%s/%s/%v", name, model, kv), func(t *testing.T) {
					dev := openDevice()
					defer dev.Close()
					sameBits(t, openGolden(t, dev, model, 0, Config{
						KV: kv, Deterministic: true, MaxModelLen: 256, MaxTokens: 64, MaxLogits: 64, MaxSeqs: 6,
					}))
				})
			}
		}
	}
}

func sameBits(t *testing.T, r *Runner) {
	rng := rand.New(rand.NewPCG(1, 2))
	lengths := []int{1, 16, 17, 40, 63, 90}
	seqs := sequences(len(lengths), 96)
	want := make([][][]float32, len(seqs))
	for s, q := range seqs {
		q.Tokens = q.Tokens[:lengths[s]]
		for range q.Tokens {
			want[s] = append(want[s], stepRows(t, r, planOf([]*sched.Sequence{q}, []int{1}))...)
			q.NumComputed++
		}
	}
	const rounds = 3
	for round := range rounds {
		shuffleBlocks(rng, seqs)
		for _, q := range seqs {
			q.NumComputed = 0
		}
		for steps := 0; ; steps++ {
			var chosen []*sched.Sequence
			var chunks []int
			room := r.Limits().MaxTokens
			for _, s := range rng.Perm(len(seqs)) {
				q := seqs[s]
				if left := min(room, len(q.Tokens)-q.NumComputed); left > 0 && rng.IntN(3) > 0 {
					n := 1 + rng.IntN(min(left, []int{1, 8, 64}[rng.IntN(3)]))
					chosen, chunks, room = append(chosen, q), append(chunks, n), room-n
				}
			}
			if len(chosen) == 0 {
				if !slices.ContainsFunc(seqs, func(q *sched.Sequence) bool { return q.NumComputed < len(q.Tokens) }) {
					break
				}
				continue
			}
			rows := stepRows(t, r, planOf(chosen, chunks))
			for i, q := range chosen {
				s := slices.Index(seqs, q)
				for range chunks[i] {
					if !slices.Equal(bitsOf(rows[0]), bitsOf(want[s][q.NumComputed])) {
						t.Fatalf("round %d, step %d of chunks %v: position %d of sequence %d has other bits than alone", round, steps, chunks, q.NumComputed, s)
					}
					rows = rows[1:]
					q.NumComputed++
				}
			}
		}
	}
}

// shuffleBlocks deals the blocks of sequences anew.
func shuffleBlocks(rng *rand.Rand, seqs []*sched.Sequence) {
	var all []kvcache.BlockID
	for _, q := range seqs {
		all = append(all, q.Table...)
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, q := range seqs {
		n := copy(q.Table, all)
		all = all[n:]
	}
}

// stepRows runs a step and copies its logits.
func stepRows(t *testing.T, r *Runner, p *sched.Plan) [][]float32 {
	t.Helper()
	res, err := r.Step(context.Background(), p, WantLogits)
	if err != nil {
		t.Fatal(err)
	}
	rows := make([][]float32, p.NumLogits)
	for i := range rows {
		rows[i] = slices.Clone(res.Row(i))
	}
	return rows
}

func bitsOf(x []float32) []uint32 {
	out := make([]uint32, len(x))
	for i, v := range x {
		out[i] = math.Float32bits(v)
	}
	return out
}

// TestManySequences decodes 256 sequences in one step, after prompts that were computed in steps of several sequences, and
// picks the same ids as each alone.
func TestManySequences(t *testing.T) {
	for name, openDevice := range devices(t) {
		t.Run(name, func(t *testing.T) {
			dev := openDevice()
			defer dev.Close()
			const n, length = 256, 3
			r := openGolden(t, dev, "ernie", 0, Config{Deterministic: true, MaxModelLen: 32, MaxTokens: n, MaxLogits: n, MaxSeqs: n})
			seqs := sequences(n, length)
			for from := 0; from < n; from += 64 {
				some := seqs[from : from+64]
				stepRows(t, r, planOf(some, slices.Repeat([]int{length - 1}, 64)))
				for _, q := range some {
					q.NumComputed = length - 1
				}
			}
			res, err := r.Step(context.Background(), planOf(seqs, slices.Repeat([]int{1}, n)), WantIDs)
			if err != nil {
				t.Fatal(err)
			}
			together := slices.Clone(res.IDs)
			for s := 0; s < n; s += 17 {
				seqs[s].NumComputed = 0
				res, err := r.Step(context.Background(), &sched.Plan{
					Chunks: []sched.Chunk{{Seq: seqs[s], Tokens: seqs[s].Tokens, Logits: 1}}, NumTokens: length, NumLogits: 1,
				}, WantIDs)
				if err != nil {
					t.Fatal(err)
				}
				if res.IDs[0] != together[s] {
					t.Errorf("sequence %d: %d among %d, %d alone", s, together[s], n, res.IDs[0])
				}
			}
		})
	}
}

// TestLongContext computes single tokens at positions beyond 65,535, where loops of software adapters end without a word, up
// to the last one of ERNIE-4.5. The context is built from a few blocks, over and over: first those of one text, and beyond
// position 65,536 those of another, so that a walk that ends early gives something else. The processor's answer is the
// reference; conformance holds the kernels themselves against internal/ref at such positions.
func TestLongContext(t *testing.T) {
	const longest = 131072
	var want map[int][]float32
	for _, name := range []string{"cpu", "gpu", "gpu default limits"} {
		t.Run(name, func(t *testing.T) {
			dev := devices(t)[name]()
			defer dev.Close()
			r := openGolden(t, dev, "ernie", longest, Config{KV: quant.KVF32, MaxModelLen: longest, MaxTokens: 64, MaxLogits: 1, MaxSeqs: 1})
			got := longContext(t, r)
			if want == nil {
				want = got
			}
			for pos, row := range got {
				largest, diff := 0.0, 0.0
				for i, v := range row {
					largest = max(largest, math.Abs(float64(v)))
					diff = max(diff, math.Abs(float64(v-want[pos][i])))
				}
				if !(diff <= 5e-4*largest) {
					t.Errorf("position %d: the largest difference is %.2g of %.2g", pos, diff, largest)
				}
			}
		})
	}
}

func longContext(t *testing.T, r *Runner) map[int][]float32 {
	const turn = 65536 / kvcache.BlockSize // the block where the second text begins
	texts := sequences(2, 64)
	for i := range texts[1].Tokens {
		texts[1].Tokens[i] = int32(7 + i*i%600)
	}
	for _, q := range texts {
		p := planOf([]*sched.Sequence{q}, []int{64})
		p.Chunks[0].Logits, p.NumLogits = 1, 1
		stepRows(t, r, p)
	}
	contextOf := func(pos int, second *sched.Sequence) []float32 {
		q := &sched.Sequence{ID: "long", Tokens: make([]int32, pos+1), NumComputed: pos}
		for i := range kvcache.NumBlocksFor(pos + 1) {
			text := texts[0]
			if i >= turn {
				text = second
			}
			q.Table = append(q.Table, text.Table[i%len(text.Table)])
		}
		q.Table[len(q.Table)-1] = 8 // its own
		q.Tokens[pos] = 77
		return stepRows(t, r, planOf([]*sched.Sequence{q}, []int{1}))[0]
	}
	got := map[int][]float32{}
	for _, pos := range []int{65519, 65535, 65536, 70000, 131071} {
		got[pos] = contextOf(pos, texts[1])
	}
	if slices.Equal(bitsOf(got[131071]), bitsOf(contextOf(131071, texts[0]))) {
		t.Error("what lies beyond position 65,536 makes no difference")
	}
	return got
}

// TestStepAllocatesNothing decodes several sequences across the edges of blocks.
func TestStepAllocatesNothing(t *testing.T) {
	for _, c := range [][2]string{{"cpu", "ernie"}, {"gpu", "ernie"}, {"cpu", "ernie-moe"}, {"gpu", "ernie-moe"}} {
		t.Run(c[0]+"/"+c[1], func(t *testing.T) {
			dev := devices(t)[c[0]]()
			defer dev.Close()
			const n, length = 5, 256
			r := openGolden(t, dev, c[1], 0, Config{KV: quant.KVF16, MaxModelLen: length, MaxTokens: 8, MaxLogits: 8, MaxSeqs: 8})
			seqs := sequences(n, length)
			tables := make([]kvcache.Table, n)
			for s, q := range seqs {
				tables[s] = q.Table
			}
			p := planOf(seqs, slices.Repeat([]int{1}, n))
			for _, want := range []Want{WantIDs, WantLogits, WantNothing} {
				pos := 0
				step := func() {
					for s := range p.Chunks {
						c := &p.Chunks[s]
						c.Start, c.Tokens = pos, c.Seq.Tokens[pos:pos+1]
						c.Seq.Table = tables[s][:pos/kvcache.BlockSize+1]
					}
					pos++
					if _, err := r.Step(context.Background(), p, want); err != nil {
						t.Fatal(err)
					}
				}
				for range 20 { // each of the processor's workers grows its memory when it first has work
					step()
				}
				if got := testing.AllocsPerRun(40, step); got >= 1 {
					t.Errorf("want %d: %v allocations in a step", want, got)
				}
			}
		})
	}
}

func TestBucketsAreNearTheRows(t *testing.T) {
	for n := 1; n <= 4096; n++ {
		b := bucket(n, 5000)
		if b < n || n <= 16 && b != n || b > n+n/4 || bucket(b, 5000) != b {
			t.Fatalf("bucket(%d) = %d", n, b)
		}
	}
	if got := bucket(9, 10); got != 9 {
		t.Errorf("bucket(9, 10) = %d, want 9", got)
	}
	if got := bucket(65, 70); got != 70 {
		t.Errorf("bucket(65, 70) = %d, want 70", got)
	}
}
