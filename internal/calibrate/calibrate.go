// Package calibrate learns from text what the inputs of a model's linear layers are like, so that quantizers know which errors
// matter, and scales the channels of a checkpoint to what it learned.
//
// It knows no formats on disk and no tokenizer: text comes as token ids.
package calibrate

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/kvcache"
	"github.com/pagelight/pagelight/internal/model"
	"github.com/pagelight/pagelight/internal/planner"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/runner"
	"github.com/pagelight/pagelight/internal/sched"
	"github.com/pagelight/pagelight/internal/weights"
)

// Text is the calibration text that is part of the program: stories, manuals, laws, dialogues and sentence pairs in English and
// Chinese. SOURCES.md says where they come from.
//
//go:embed text.txt
var Text string

// Window is the number of tokens that are run together, from position 0.
const Window = 512

// MaxMoment is the largest K of which the whole second moment is kept: 128 MiB of f64. Above it only the diagonal is.
const MaxMoment = 4096

// Moment is what is known of the input x [K] of some linear layers, over all calibration tokens.
type Moment struct {
	K, Tokens int
	Magnitude []float64 // [K] the mean of |x|
	Square    []float64 // [K, K] the mean of x*xᵀ, or [K] of x² where K is more than MaxMoment

	finished bool
}

// Metric is the metric of errors that follows. The moment keeps its numbers.
func (m *Moment) Metric() (*quant.Metric, error) {
	if len(m.Square) == m.K {
		return quant.DiagonalMetric(m.Square)
	}
	return quant.NewMetric(append([]float64(nil), m.Square...))
}

// Diagonal is the metric that knows no correlation of inputs.
func (m *Moment) Diagonal() (*quant.Metric, error) {
	if len(m.Square) == m.K {
		return quant.DiagonalMetric(m.Square)
	}
	squares := make([]float64, m.K)
	for i := range squares {
		squares[i] = m.Square[i*m.K+i]
	}
	return quant.DiagonalMetric(squares)
}

// Calibrator runs a model over calibration text. It belongs to one goroutine.
type Calibrator struct {
	run     *runner.Runner
	windows [][]int32
}

// ErrText says that there is not enough calibration text.
var ErrText = errors.New("the calibration text is too short")

// Windows cuts token ids into windows of at most length tokens, which are run each on its own. A rest of less than half a window is
// left out. limit, where it is not 0, is the most tokens to take; they are then taken evenly from all of the text.
func Windows(ids []int32, length, limit int) ([][]int32, error) {
	var all [][]int32
	for lo := 0; lo+length/2 <= len(ids); lo += length {
		all = append(all, ids[lo:min(lo+length, len(ids))])
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("calibrate: %w: it has %d tokens, at least %d are needed", ErrText, len(ids), length/2)
	}
	if n := max(1, limit/length); limit > 0 && n < len(all) {
		some := make([][]int32, n)
		for i := range some {
			some[i] = all[i*len(all)/n]
		}
		all = some
	}
	return all, nil
}

// logitRows is the number of rows of logits in a step.
const logitRows = 64

// Open puts a model on a device, to be run over the windows, with as much memory as one window needs. Device and source stay the
// caller's.
func Open(ctx context.Context, dev gpu.Device, src weights.Source, windows [][]int32) (*Calibrator, error) {
	longest := 0
	for _, w := range windows {
		longest = max(longest, len(w))
	}
	if longest == 0 {
		return nil, fmt.Errorf("calibrate: %w: it has no tokens", ErrText)
	}
	asLoaded, q4 := planner.SourceBytes(src)
	need, err := planner.Make(planner.Request{ // with no budget: it says what there has to be
		Config: src.Config(), WeightBytes: asLoaded, Q4Bytes: q4, KV: quant.KVF32, Device: dev.Info().Name, Limits: dev.Limits(),
		Tuning: kernels.TuningFor(dev.Info()), MaxModelLen: longest, MaxSeqs: 1, MaxTokens: longest, MaxLogits: min(longest, logitRows),
		NumTokens: src.Config().VocabSize,
	})
	if err != nil {
		return nil, fmt.Errorf("calibrate: %w", err)
	}
	r, err := runner.Open(ctx, dev, src, runner.Config{
		KV: quant.KVF32, Budget: need.Need, MaxModelLen: longest, MaxTokens: longest, MaxLogits: min(longest, logitRows), MaxSeqs: 1,
		NumTokens: src.Config().VocabSize, Progress: func(string, int64, int64, string) {},
	})
	if err != nil {
		return nil, err
	}
	return &Calibrator{run: r, windows: windows}, nil
}

// Close frees what Open put on the device.
func (c *Calibrator) Close() { c.run.Close() }

// Inputs lists which matrices read the same input, in the order in which the model reaches them. Matrices that are not there cannot
// be calibrated: the embedding, the LM head and routed experts, which only some tokens reach.
func (c *Calibrator) Inputs() [][]string {
	var out [][]string
	for _, t := range c.run.Taps() {
		out = append(out, t.Names)
	}
	return out
}

// Collect runs all windows and gathers the moments of the inputs of the matrices that want names, by matrix; those that read the same
// input share one. The same windows give the same moments on the same device. progress, which may be nil, hears of the tokens that
// are done.
func (c *Calibrator) Collect(ctx context.Context, want func(name string) bool, progress func(done, total int)) (map[string]*Moment, error) {
	moments := map[string]*Moment{}
	for _, t := range c.run.Taps() {
		if wanted(t, want) && moments[t.Names[0]] == nil {
			m := newMoment(t.K)
			for _, name := range t.Names {
				moments[name] = m
			}
		}
	}
	total, done := 0, 0
	for _, w := range c.windows {
		total += len(w)
	}
	for _, w := range c.windows {
		err := c.run.StepTaps(ctx, plan(w, 0), func(t model.Tap) bool { return wanted(t, want) }, func(t model.Tap, rows []float32) error {
			return moments[t.Names[0]].add(rows)
		})
		if err != nil {
			return nil, fmt.Errorf("calibrate: %w", err)
		}
		if done += len(w); progress != nil {
			progress(done, total)
		}
	}
	for _, m := range moments {
		m.finish()
	}
	return moments, nil
}

func wanted(t model.Tap, want func(name string) bool) bool {
	for _, name := range t.Names {
		if want(name) {
			return true
		}
	}
	return false
}

// plan is a step over one window alone, with logits of the last tokens.
func plan(window []int32, logits int) *sched.Plan {
	q := &sched.Sequence{ID: "calibration", Tokens: window, Table: make(kvcache.Table, kvcache.NumBlocksFor(len(window)))}
	for i := range q.Table {
		q.Table[i] = kvcache.BlockID(i)
	}
	return &sched.Plan{Chunks: []sched.Chunk{{Seq: q, Tokens: window, Logits: logits}}, NumTokens: len(window), NumLogits: logits}
}

func newMoment(k int) *Moment {
	m := &Moment{K: k, Magnitude: make([]float64, k), Square: make([]float64, k)}
	if k <= MaxMoment {
		m.Square = make([]float64, k*k)
	}
	return m
}

// add takes the inputs of some tokens, [tokens, K].
func (m *Moment) add(x []float32) error {
	k := m.K
	tokens := len(x) / k
	for t := range tokens {
		for i, v := range x[t*k : (t+1)*k] {
			if v-v != 0 {
				return fmt.Errorf("the model computes %v on calibration text", v)
			}
			m.Magnitude[i] += math.Abs(float64(v))
			if len(m.Square) == k {
				m.Square[i] += float64(v) * float64(v)
			}
		}
	}
	m.Tokens += tokens
	if len(m.Square) == k {
		return nil
	}
	const tile = 4 // K is a multiple of 8
	blocks := k / tile
	var wg sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		wg.Go(func() {
			for b := w; b < blocks; b += workers {
				for j := b; j < blocks; j++ {
					m.tile(x, b*tile, j*tile)
				}
			}
		})
	}
	wg.Wait()
	return nil
}

// tile adds 4 by 4 products, from row i and column j on, over all tokens of x. Whoever runs it, the sums are made in the same order.
func (m *Moment) tile(x []float32, i, j int) {
	var s [4][4]float32
	k := m.K
	for at := 0; at < len(x); at += k {
		a := (*[4]float32)(x[at+i : at+i+4])
		b := (*[4]float32)(x[at+j : at+j+4])
		a0, a1, a2, a3 := a[0], a[1], a[2], a[3]
		b0, b1, b2, b3 := b[0], b[1], b[2], b[3]
		s[0][0] += float32(a0 * b0)
		s[0][1] += float32(a0 * b1)
		s[0][2] += float32(a0 * b2)
		s[0][3] += float32(a0 * b3)
		s[1][0] += float32(a1 * b0)
		s[1][1] += float32(a1 * b1)
		s[1][2] += float32(a1 * b2)
		s[1][3] += float32(a1 * b3)
		s[2][0] += float32(a2 * b0)
		s[2][1] += float32(a2 * b1)
		s[2][2] += float32(a2 * b2)
		s[2][3] += float32(a2 * b3)
		s[3][0] += float32(a3 * b0)
		s[3][1] += float32(a3 * b1)
		s[3][2] += float32(a3 * b2)
		s[3][3] += float32(a3 * b3)
	}
	for di := range s {
		for dj, v := range s[di] {
			m.Square[(i+di)*k+j+dj] += float64(v)
		}
	}
}

// finish turns sums into means, and fills what lies below the diagonal; it does so once.
func (m *Moment) finish() {
	if m.finished {
		return
	}
	m.finished = true
	n := float64(m.Tokens)
	for i := range m.Magnitude {
		m.Magnitude[i] /= n
	}
	for i := range m.Square {
		m.Square[i] /= n
	}
	if len(m.Square) == m.K {
		return
	}
	for i := range m.K {
		for j := range i {
			m.Square[i*m.K+j] = m.Square[j*m.K+i]
		}
	}
}
