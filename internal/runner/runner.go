// Package runner executes plans: it turns a plan of the scheduler into the numbers that the kernels read, submits recorded
// programs and reads back tokens or logits. A step writes a few hundred bytes, makes one submission and one read-back. It
// allocates nothing, neither on the device nor in Go, but when it is the first of its size.
package runner

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/kvcache"
	"github.com/pagelight/pagelight/internal/model"
	"github.com/pagelight/pagelight/internal/sample"
	"github.com/pagelight/pagelight/internal/sched"
	"github.com/pagelight/pagelight/internal/weights"
)

// Want says what a step is to read back.
type Want uint8

// What a step can read back for the rows that want logits.
const (
	WantNothing Want = iota
	WantIDs          // the best token of each row, found on the device
	WantTop          // the candidates of each row for a sampler, see StepTop
	WantLogits       // all logits

	wantNext // and the two after it: the token of each row, which goes on to the next step, by Choice
	_
	_
	wantAdjusted // and the two after it: the same, with logits changed first
)

// Result is what a step read back. It is valid until the next step.
type Result struct {
	IDs    []int32      // [rows] with WantIDs; -1 where the logits hold a NaN
	Top    []sample.Top // [rows] with WantTop
	Logits []float32    // [rows, vocab] with WantLogits
	Vocab  int
}

// Row is one row of logits.
func (r Result) Row(i int) []float32 { return r.Logits[i*r.Vocab : (i+1)*r.Vocab] }

// Runner runs one model on one device. It belongs to one goroutine.
type Runner struct {
	dev     gpu.Device
	cfg     *weights.Config
	set     *kernels.Set
	weights *model.Weights
	cache   *model.Cache
	fwd     *model.Forward
	limits  Limits
	shape   model.Shape
	desc    Description

	idsBack, logitsBack gpu.Buffer // mapped for reading
	trunks              map[trunkKey]gpu.Program
	heads               map[headKey]gpu.Program

	in      inputs
	top     top
	bursts  bursts
	adjusts adjusts
	clock   Clock
	// dispatches are those of each program.
	dispatches map[gpu.Program]int
	ids        []int32
	out        []float32      // grows to the largest step that wanted logits
	submit     [2]gpu.Program // of the step under way
}

type trunkKey struct {
	rows  int // a bucket
	trunk model.Trunk
	split bool // recorded for long contexts though the trunk is for any
}

type headKey struct {
	rows int
	want Want
}

// Limits are what a runner can do, decided when it was opened.
type Limits struct {
	NumBlocks   int // of the KV cache
	MaxModelLen int // tokens of one sequence
	MaxTokens   int // in one step
	MaxLogits   int // rows of logits in one step
	MaxSeqs     int // in one step
}

// Description says what was opened, for people.
type Description struct {
	Parameters, ActiveParameters       int64
	Formats                            string // of the weights
	WeightBytes, ScratchBytes, KVBytes int64
	Kernels                            []string
	Notes                              []string
}

// Limits says what the runner can do.
func (r *Runner) Limits() Limits { return r.limits }

// Description says what was opened.
func (r *Runner) Description() Description { return r.desc }

// Step computes a plan. An error that wraps gpu.ErrDeviceLost is final.
func (r *Runner) Step(ctx context.Context, p *sched.Plan, want Want) (Result, error) {
	start := time.Now()
	if err := r.in.write(r.dev, r.fwd, p); err != nil {
		return Result{}, err
	}
	trunk, err := r.trunk(bucket(p.NumTokens, r.limits.MaxTokens))
	if err != nil {
		return Result{}, err
	}
	if p.NumLogits == 0 {
		want = WantNothing
	}
	if want == WantNothing {
		// Nothing is read, but the wait keeps at most one step in flight and brings errors home to their step.
		r.submit[0] = trunk
		if err := r.submitAll(start, r.submit[:1], p.NumTokens, 1); err != nil {
			return Result{}, err
		}
		return Result{}, r.wait(func() error { return r.dev.Wait(ctx) }, 0)
	}
	head, err := r.head(headKey{bucket(p.NumLogits, r.limits.MaxLogits), want})
	if err != nil {
		return Result{}, err
	}
	r.submit = [2]gpu.Program{trunk, head}
	if err := r.submitAll(start, r.submit[:], p.NumTokens, 1); err != nil {
		return Result{}, err
	}
	if want == WantIDs {
		ids := r.ids[:p.NumLogits]
		return Result{IDs: ids}, r.read(ctx, r.idsBack, gpu.Bytes(ids))
	}
	if want == WantTop {
		rows, err := r.readTop(ctx, p.NumLogits)
		return Result{Top: rows}, err
	}
	out := r.hostLogits(p.NumLogits)
	return Result{Logits: out, Vocab: r.cfg.VocabSize}, r.read(ctx, r.logitsBack, gpu.Bytes(out))
}

// hostLogits is memory for rows rows of logits.
func (r *Runner) hostLogits(rows int) []float32 {
	if n := bucket(rows, r.limits.MaxLogits) * r.cfg.VocabSize; n > len(r.out) {
		r.out = make([]float32, n)
	}
	return r.out[:rows*r.cfg.VocabSize]
}

// bucket is what a step of n rows is rounded up to, but not beyond most: programs are recorded for buckets, and kernels
// read the true number from the step buffer. Up to 16 rows it is exact, for a few rows more are many times more; then
// it goes in quarters of a power of two: 20, 24, 28, 32, 40, ..
func bucket(n, most int) int {
	if n > 16 {
		step := 1 << (bits.Len(uint(n-1)) - 3)
		n = (n + step - 1) / step * step
	}
	return min(n, most)
}

// trunk gives the program from token ids to hidden states for a bucket of rows, the one that suits the longest context of the inputs
// that were last written.
func (r *Runner) trunk(rows int) (gpu.Program, error) {
	key := r.trunkKey(rows)
	if p := r.trunks[key]; p != nil {
		return p, nil
	}
	cmds := r.recordTrunk(r.fwd.Ops(key.trunk), key)
	p, err := r.dev.NewProgram(fmt.Sprintf("trunk of %d rows", rows), cmds)
	if err == nil {
		r.trunks[key], r.dispatches[p] = p, dispatches(cmds)
	}
	return p, err
}

// head gives the program from hidden states to what is read back.
func (r *Runner) head(key headKey) (gpu.Program, error) {
	if p := r.heads[key]; p != nil {
		return p, nil
	}
	ops := r.fwd.HeadOf(key.rows)
	switch key.want {
	case WantIDs:
		ops = r.fwd.HeadPickOf(key.rows)
	case wantNext + Want(ChooseBest):
		ops = r.fwd.HeadPickNextOf(key.rows)
	}
	cmds := record(nil, ops, key.rows)
	switch key.want {
	case WantIDs:
		cmds = append(cmds, gpu.Command{CopySrc: r.fwd.IDs, CopyDst: r.idsBack, CopySize: int64(4 * key.rows)})
	case wantNext + Want(ChooseBest):
	case wantNext + Want(ChooseDrawn):
		cmds = record(cmds, r.fwd.DrawNext, key.rows)
	case wantNext + Want(ChooseNuclei):
		cmds = record(cmds, r.fwd.NucleusNext, key.rows)
	case wantAdjusted + Want(ChooseBest):
		cmds = record(cmds, r.adjusts.made.PickNext, key.rows)
	case wantAdjusted + Want(ChooseDrawn):
		cmds = record(cmds, r.adjusts.made.DrawNext, key.rows)
	case wantAdjusted + Want(ChooseNuclei):
		cmds = record(cmds, r.adjusts.made.NucleusNext, key.rows)
	case WantTop:
		cmds = append(record(cmds, r.fwd.Select, key.rows), r.topCommands(key.rows)...)
	default:
		cmds = append(cmds, gpu.Command{CopySrc: r.fwd.Logits, CopyDst: r.logitsBack, CopySize: int64(4 * key.rows * r.cfg.VocabSize)})
	}
	p, err := r.dev.NewProgram(fmt.Sprintf("head of %d rows", key.rows), cmds)
	if err == nil {
		r.heads[key], r.dispatches[p] = p, dispatches(cmds)
	}
	return p, err
}

func dispatches(cmds []gpu.Command) (n int) {
	for _, c := range cmds {
		if c.Pipeline != nil {
			n++
		}
	}
	return n
}

func (r *Runner) trunkKey(rows int) trunkKey {
	key := trunkKey{rows: rows, trunk: r.fwd.TrunkFor(rows, r.in.longest)}
	key.split = key.trunk == model.ManyTrunk && r.set.Splits(rows, r.in.longest)
	return key
}

// recordTrunk records ops of a trunk.
func (r *Runner) recordTrunk(ops []kernels.Op, key trunkKey) (cmds []gpu.Command) {
	if !key.split && key.trunk != model.LongTrunk {
		return record(nil, ops, key.rows)
	}
	for _, op := range ops {
		cmds = append(cmds, op.RecordLong(key.rows)...)
	}
	return cmds
}

func record(cmds []gpu.Command, ops []kernels.Op, rows int) []gpu.Command {
	for _, op := range ops {
		cmds = append(cmds, op.Record(rows)...)
	}
	return cmds
}

// DispatchesPerToken counts the dispatches of a decode step of one sequence, whose context is short.
func (r *Runner) DispatchesPerToken() int {
	return len(record(record(nil, r.fwd.Ops(r.fwd.TrunkFor(1, 1)), 1), r.fwd.HeadPickNextOf(1), 1))
}

// warmup runs the steps that come first for every user, so that what drivers build late is built before anyone waits: a
// prompt and one token. Nothing is stored in the cache.
func (r *Runner) warmup(ctx context.Context) error {
	n := min(r.limits.MaxTokens, kvcache.BlockSize, r.limits.MaxModelLen)
	for _, rows := range slices.Compact([]int{n, 1}) {
		q := &sched.Sequence{ID: "warm-up", Tokens: make([]int32, rows)}
		q.Table = make(kvcache.Table, kvcache.NumBlocksFor(rows)) // block 0, which nobody holds yet
		p := &sched.Plan{Chunks: []sched.Chunk{{Seq: q, Tokens: q.Tokens, Logits: 1}}, NumTokens: rows, NumLogits: 1}
		if _, err := r.Step(ctx, p, WantIDs); err != nil {
			return err
		}
	}
	return nil
}

// Close frees everything that the runner made; the device stays open.
func (r *Runner) Close() {
	for _, p := range r.trunks {
		p.Release()
	}
	for _, p := range r.heads {
		p.Release()
	}
	if r.set != nil {
		r.set.Release()
	}
	if r.fwd != nil {
		r.fwd.Release()
	}
	if r.cache != nil {
		r.cache.Release()
	}
	if r.weights != nil {
		r.weights.Release()
	}
	r.top.release()
	r.bursts.release()
	for _, b := range []gpu.Buffer{r.idsBack, r.logitsBack} {
		if b != nil {
			b.Release()
		}
	}
}
