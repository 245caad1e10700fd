package kernels

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/wgsl"
)

// trial is what it takes to build and judge an op with another variant.
type trial struct {
	in, out []gpu.Buffer // f32 that it reads, and writes or adds to
	cache   []gpu.Buffer // keys and values that it writes, as kv says
	kv      quant.KVType // of cache
	// positions is the longest context that it serves; 0: any.
	positions int
	again     func() (Op, error)
	rows      map[string]int // the largest bucket, by key of a choice that building it made
}

// tried has the choices of an op under construction known as those of t, until the function that it gives is called.
func (s *Set) tried(t trial) (end func()) {
	if s.trying { // it is under trial
		return func() {}
	}
	t.rows = map[string]int{}
	outer := s.trial // an op may be made of others
	s.trial = &t
	return func() {
		for key := range t.rows {
			s.trials[key] = append(s.trials[key], &t)
		}
		s.trial = outer
	}
}

// Measured is what a tuner found for a choice.
type Measured struct {
	Key      string                   `json:"key"`
	Default  string                   `json:"default"`
	Chosen   string                   `json:"chosen"`
	Times    map[string]time.Duration `json:"times"`              // by variant, for the ops of all layers together
	Rejected map[string]string        `json:"rejected,omitempty"` // variants that failed or gave other values, and why
}

// Tuner times the variants of a Set's ops over the buffers that they are bound to. What these hold is lost, but for weights. It is
// used while nothing else uses the device.
type Tuner struct {
	Set *Set
	// Prepare writes the inputs that are no activations (Step, Tokens, BlockTables) for a step of rows rows, with contexts of at most
	// positions positions if that is not 0.
	Prepare func(rows, positions int) error
	// Time gives the time that a program takes.
	Time func(ctx context.Context, p gpu.Program) (time.Duration, error)
	// Budget is how long all may take; choices not looked at by then keep their defaults. 0: any time.
	Budget time.Duration
}

const (
	// tuneGain is how much faster than the default a variant has to be: less is noise, and the default is what was tested most.
	tuneGain = 0.97
	// tuneBytes is how much of an output is compared.
	tuneBytes = 1 << 20
	// tuneTolerance is the largest difference of a value, in parts of the largest: variants sum in other orders.
	tuneTolerance = 1e-3
	// tuneHalf is that of keys and values in f16.
	tuneHalf = 4e-3
)

// Run measures the choices of which there are two variants or more, those that take the longest first.
func (t *Tuner) Run(ctx context.Context) (list []Measured, err error) {
	s := t.Set
	if s.tuning.Deterministic || s.tuning.BarrierFree {
		return nil, nil
	}
	start := time.Now()
	choices := s.tuning.Choices
	s.trying = true
	defer func() { s.tuning.Choices, s.trying = choices, false }()
	back, err := s.dev.NewBuffer("tuner", tuneBytes, gpu.UsageMapRead|gpu.UsageCopyDst)
	if err != nil {
		return nil, fmt.Errorf("kernels: tune: %w", err)
	}
	defer back.Release()
	type known struct {
		key  string
		took time.Duration
	}
	var order []known
	for _, key := range slices.Sorted(maps.Keys(s.choosable)) {
		if len(s.choosable[key]) < 2 || len(s.trials[key]) == 0 {
			continue
		}
		first := t.try(ctx, back, key, s.choosable[key][0])
		if first.err != nil {
			return nil, fmt.Errorf("kernels: tune: %s: %s: %w", key, s.choosable[key][0], first.err)
		}
		order = append(order, known{key, first.took})
	}
	slices.SortStableFunc(order, func(a, b known) int { return cmp.Compare(b.took, a.took) })
	for _, k := range order {
		if t.Budget > 0 && time.Since(start) > t.Budget {
			break
		}
		variants := s.choosable[k.key]
		first := t.try(ctx, back, k.key, variants[0]) // again: what other ops left in the cache is now the same for all variants
		if first.err != nil {
			return list, fmt.Errorf("kernels: tune: %s: %s: %w", k.key, variants[0], first.err)
		}
		m := Measured{Key: k.key, Default: variants[0], Chosen: variants[0], Times: map[string]time.Duration{variants[0]: first.took}}
		best := time.Duration(float64(min(first.took, k.took)) * tuneGain)
		for _, v := range variants[1:] {
			r := t.try(ctx, back, k.key, v)
			if r.err == nil {
				r.err = first.differs(r)
			}
			if err := errors.Join(ctx.Err(), s.dev.Err()); err != nil {
				return list, err
			}
			if r.err != nil {
				if m.Rejected == nil {
					m.Rejected = map[string]string{}
				}
				m.Rejected[v] = r.err.Error()
				continue
			}
			if m.Times[v] = r.took; r.took < best {
				m.Chosen, best = v, r.took
			}
		}
		list = append(list, m)
	}
	return list, nil
}

// result is what became of a variant.
type result struct {
	took    time.Duration
	outputs []output
	err     error
}

type output struct {
	name string
	data []byte
	half bool // f16, else f32
}

// try builds the ops that a choice belongs to with a variant, runs each by itself over inputs that are the same every time, keeps
// what the first one writes, and times all of them together.
func (t *Tuner) try(ctx context.Context, back gpu.Buffer, key, variant string) (r result) {
	s := t.Set
	s.tuning.Choices = map[string]string{key: variant}
	var ops []Op
	for _, tr := range s.trials[key] {
		op, err := tr.again()
		if err != nil {
			return result{err: err}
		}
		ops = append(ops, op)
	}
	if err := s.Compile(ctx, nil); err != nil {
		s.discard()
		return result{err: err}
	}
	first := s.trials[key][0]
	rows := first.rows[key]
	if err := t.Prepare(rows, first.positions); err != nil {
		return result{err: err}
	}
	fill := rand.New(rand.NewPCG(1, 2))
	for _, b := range slices.Concat(first.in, first.out) {
		if err := t.fill(b, fill); err != nil {
			return result{err: err}
		}
	}
	single, err := s.dev.NewProgram("tune "+key, ops[0].Record(rows))
	if err != nil {
		return result{err: err}
	}
	defer single.Release()
	if err := s.dev.Submit(single); err != nil {
		return result{err: err}
	}
	if r.outputs, err = t.read(ctx, back, first); err != nil {
		return result{err: err}
	}
	var commands []gpu.Command
	for _, op := range ops {
		commands = append(commands, op.Record(rows)...)
	}
	all, err := s.dev.NewProgram("tune "+key, commands)
	if err != nil {
		return result{err: err}
	}
	defer all.Release()
	r.took, r.err = t.Time(ctx, all)
	return r
}

// fill writes numbers between -1 and 1 to the first tuneBytes of b and zeros to nothing: what lies beyond is compared nowhere.
func (t *Tuner) fill(b gpu.Buffer, from *rand.Rand) error {
	values := make([]float32, min(b.Size(), 4*tuneBytes)/4)
	for i := range values {
		values[i] = from.Float32()*2 - 1
	}
	return t.Set.dev.WriteBuffer(b, 0, gpu.Bytes(values))
}

// read fetches what an op wrote.
func (t *Tuner) read(ctx context.Context, back gpu.Buffer, tr *trial) (list []output, err error) {
	dev := t.Set.dev
	outs := tr.out
	if tr.kv != quant.KVI8 { // of bytes with scales of their own a difference says nothing
		outs = slices.Concat(tr.out, tr.cache)
	}
	for i, b := range outs {
		n := min(b.Size(), tuneBytes)
		p, err := dev.NewProgram("tune: read", []gpu.Command{{CopySrc: b, CopyDst: back, CopySize: n}})
		if err != nil {
			return nil, err
		}
		defer p.Release()
		if err := dev.Submit(p); err != nil {
			return nil, err
		}
		o := output{name: b.Label(), data: make([]byte, n), half: i >= len(tr.out) && tr.kv == quant.KVF16}
		if err := dev.Read(ctx, back, 0, o.data); err != nil {
			return nil, err
		}
		list = append(list, o)
	}
	return list, nil
}

// differs says how other values lie too far from r's.
func (r result) differs(other result) error {
	for i, a := range r.outputs {
		want, got := a.values(), other.outputs[i].values()
		largest := 0.0
		for _, v := range want {
			largest = max(largest, math.Abs(v))
		}
		tolerance := largest * tuneTolerance
		if a.half {
			tolerance = largest * tuneHalf
		}
		for k, v := range got {
			// Written so that NaN differs from all but NaN, which filled memory may hold where nothing is written.
			if !(math.Abs(v-want[k]) <= tolerance) && !(math.IsNaN(v) && math.IsNaN(want[k])) {
				return fmt.Errorf("element %d of %s is %v, with the default %v", k, a.name, v, want[k])
			}
		}
	}
	return nil
}

func (o output) values() []float64 {
	var list []float64
	if o.half {
		for i := 0; i+1 < len(o.data); i += 2 {
			list = append(list, float64(quant.F16ToF32(uint16(o.data[i])|uint16(o.data[i+1])<<8)))
		}
		return list
	}
	for i := 0; i+3 < len(o.data); i += 4 {
		bits := uint32(o.data[i]) | uint32(o.data[i+1])<<8 | uint32(o.data[i+2])<<16 | uint32(o.data[i+3])<<24
		list = append(list, float64(math.Float32frombits(bits)))
	}
	return list
}

// discard forgets pipelines that could not be compiled and the ops that wait for them.
func (s *Set) discard() {
	for _, p := range s.wanted {
		delete(s.pipelines, p.desc.Label)
	}
	s.wanted, s.unfinished = nil, nil
}

// Hash names the text of all kernels.
func Hash() string {
	sum := sha256.New()
	for _, k := range wgsl.Kernels() {
		source, err := wgsl.Source(k.Name, slices.Concat(k.Libs, wgsl.LibFiles()), nil)
		if err != nil {
			panic("BUG: " + err.Error())
		}
		fmt.Fprintln(sum, k.Name, source)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
