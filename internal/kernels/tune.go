package kernels

import (
	"cmp"
	"context"
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
	// columns, if not 0, are how many of stride elements of a row of out have a meaning: variants leave other things in the rest.
	columns, stride int
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
	// Budget is how long all may take, but for the variant under way; choices and variants not looked at by then are left out. 0: any time.
	Budget time.Duration
	// Only says which choices are measured, by key and the rows of the largest step that they are made for; nil: all.
	Only func(key string, rows int) bool
	// Bytes is how much of each buffer is filled and compared, 0: tuneBytes.
	Bytes int64

	found []Measured    // so far
	spent time.Duration // so far
	since time.Time     // of this Run
}

// over says whether the budget is spent.
func (t *Tuner) over() bool { return t.Budget > 0 && t.spent+time.Since(t.since) > t.Budget }

const (
	// tuneRounds is how often a variant and the default are timed in turn. It has to be faster each time, which noise alone brings about once
	// in 2^tuneRounds, and tuneGain of the time by their medians: the default is what was tested most.
	tuneRounds = 9
	tuneGain   = 0.99
	// tuneBest is how many variants, the fastest at a first look, may try so.
	tuneBest = 2
	// tuneBytes is how much of an output is compared.
	tuneBytes = 1 << 20
	// tuneTolerance is the largest difference of a value, in parts of the largest: variants sum in other orders.
	tuneTolerance = 1e-3
	// tuneHalf is that of keys and values in f16.
	tuneHalf = 4e-3
)

// Run measures the choices of which there are two variants or more, those that take the longest first. When ctx ends it returns its
// error soon and may be called again: it goes on with the choice that it was at.
func (t *Tuner) Run(ctx context.Context) (list []Measured, err error) {
	s := t.Set
	if s.tuning.Deterministic || s.tuning.BarrierFree {
		return nil, nil
	}
	t.since = time.Now()
	defer func() { t.spent += time.Since(t.since) }()
	choices := s.tuning.Choices
	s.trying = true
	defer func() { s.tuning.Choices, s.trying = choices, false }()
	back, err := s.dev.NewBuffer("tuner", t.bytes(), gpu.UsageMapRead|gpu.UsageCopyDst)
	if err != nil {
		return nil, fmt.Errorf("kernels: tune: %w", err)
	}
	defer back.Release()
	order, err := t.order(ctx, back)
	if err != nil {
		return t.found, err
	}
	for _, k := range order {
		if t.over() {
			break
		}
		m, err := t.measure(ctx, back, k.key, k.took)
		if err != nil {
			return t.found, err
		}
		t.found = append(t.found, m)
	}
	return t.found, nil
}

// Choices are the keys that Run would measure, if its budget allows.
func (t *Tuner) Choices() (keys []string) {
	s := t.Set
	for _, key := range slices.Sorted(maps.Keys(s.choosable)) {
		if len(s.choosable[key]) < 2 || len(s.trials[key]) == 0 || t.Only != nil && !t.Only(key, s.trials[key][0].rows[key]) {
			continue
		}
		if !slices.ContainsFunc(t.found, func(m Measured) bool { return m.Key == key }) {
			keys = append(keys, key)
		}
	}
	return keys
}

// timed is a choice and what its default takes.
type timed struct {
	key  string
	took time.Duration
}

// order times the defaults and gives the choices by that, the longest first.
func (t *Tuner) order(ctx context.Context, back gpu.Buffer) (order []timed, err error) {
	for _, key := range t.Choices() {
		if t.over() {
			break
		}
		first := t.try(ctx, back, key, t.Set.choosable[key][0])
		if err := errors.Join(ctx.Err(), t.Set.dev.Err()); err != nil {
			return nil, err
		}
		if first.err != nil {
			return nil, fmt.Errorf("kernels: tune: %s: %s: %w", key, t.Set.choosable[key][0], first.err)
		}
		order = append(order, timed{key, first.took})
	}
	slices.SortStableFunc(order, func(a, b timed) int { return cmp.Compare(b.took, a.took) })
	return order, nil
}

// measure times the variants of one choice, whose default once took some time, and lets the fastest of them compete with the default.
func (t *Tuner) measure(ctx context.Context, back gpu.Buffer, key string, once time.Duration) (m Measured, err error) {
	variants := t.Set.choosable[key]
	m = Measured{Key: key, Default: variants[0], Chosen: variants[0], Times: map[string]time.Duration{}}
	var first result
	for i, v := range variants {
		if i > 0 && t.over() {
			break
		}
		r := t.try(ctx, back, key, v)
		if err := errors.Join(ctx.Err(), t.Set.dev.Err()); err != nil {
			return m, err
		}
		if i == 0 { // again: what other ops left in the cache is now the same for all variants
			if r.err != nil {
				return m, fmt.Errorf("kernels: tune: %s: %s: %w", key, v, r.err)
			}
			first, r.took = r, min(r.took, once)
		} else if r.err == nil {
			r.err = first.differs(r)
		}
		if r.err != nil {
			if m.Rejected == nil {
				m.Rejected = map[string]string{}
			}
			m.Rejected[v] = r.err.Error()
			continue
		}
		m.Times[v] = r.took
	}
	fastest := slices.DeleteFunc(slices.Clone(variants), func(v string) bool {
		took, ok := m.Times[v]
		return !ok || took >= m.Times[m.Default]
	})
	slices.SortStableFunc(fastest, func(a, b string) int { return cmp.Compare(m.Times[a], m.Times[b]) })
	for _, v := range fastest[:min(tuneBest, len(fastest))] {
		faster, err := t.compete(ctx, key, m.Default, v, m.Times)
		if err := errors.Join(ctx.Err(), t.Set.dev.Err(), err); err != nil {
			return m, err
		}
		if faster {
			m.Chosen = v
			break
		}
	}
	return m, nil
}

// compete times two variants in turn and says whether v is faster than the default beyond doubt; times gets their medians then.
func (t *Tuner) compete(ctx context.Context, key, byDefault, v string, times map[string]time.Duration) (faster bool, err error) {
	a, err := t.build(ctx, key, byDefault)
	if err != nil {
		return false, err
	}
	defer a.release()
	b, err := t.build(ctx, key, v)
	if err != nil {
		return false, err
	}
	defer b.release()
	faster = true
	var of [2][]time.Duration
	for range tuneRounds {
		for i, p := range [2]gpu.Program{a.all, b.all} {
			took, err := t.Time(ctx, p)
			if err != nil {
				return false, err
			}
			of[i] = append(of[i], took)
		}
		faster = faster && of[1][len(of[1])-1] < of[0][len(of[0])-1]
		if !faster {
			return false, nil
		}
	}
	for i, name := range [2]string{byDefault, v} {
		slices.Sort(of[i])
		times[name] = of[i][tuneRounds/2]
	}
	return float64(times[v]) <= tuneGain*float64(times[byDefault]), nil
}

func (t *Tuner) bytes() int64 { return cmp.Or(t.Bytes, tuneBytes) }

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
	// columns of stride are compared, as trial says; 0: all.
	columns, stride int
}

// built is what a variant is tried with.
type built struct {
	ops    []Op
	all    gpu.Program // of all ops
	groups []gpu.BindGroup
}

func (b *built) release() {
	if b.all != nil {
		b.all.Release()
	}
	for _, g := range b.groups {
		g.Release()
	}
}

// build makes the ops that a choice belongs to with a variant, and writes what they read beside activations.
func (t *Tuner) build(ctx context.Context, key, variant string) (b *built, err error) {
	s := t.Set
	s.tuning.Choices = map[string]string{key: variant}
	b = &built{}
	kept := len(s.groups)
	defer func() {
		b.groups = slices.Clone(s.groups[kept:])
		s.groups = s.groups[:kept]
		if err != nil {
			s.discard()
			b.release()
		}
	}()
	for _, tr := range s.trials[key] {
		op, err := tr.again()
		if err != nil {
			return b, err
		}
		b.ops = append(b.ops, op)
	}
	if err := s.Compile(ctx, nil); err != nil {
		return b, err
	}
	first := s.trials[key][0]
	rows := first.rows[key]
	if err := t.Prepare(rows, first.positions); err != nil {
		return b, err
	}
	var commands []gpu.Command
	for _, op := range b.ops {
		commands = append(commands, op.Record(rows)...)
	}
	b.all, err = s.dev.NewProgram("tune "+key, commands)
	return b, err
}

// try runs the ops of a variant, each by itself over inputs that are the same every time, keeps what the first one writes, and
// times all of them together.
func (t *Tuner) try(ctx context.Context, back gpu.Buffer, key, variant string) (r result) {
	s := t.Set
	b, err := t.build(ctx, key, variant)
	if err != nil {
		return result{err: err}
	}
	defer b.release()
	first := s.trials[key][0]
	fill := rand.New(rand.NewPCG(1, 2))
	for _, buf := range slices.Concat(first.in, first.out) {
		if err := t.fill(buf, fill); err != nil {
			return result{err: err}
		}
	}
	single, err := s.dev.NewProgram("tune "+key, b.ops[0].Record(first.rows[key]))
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
	r.took, r.err = t.Time(ctx, b.all)
	return r
}

// fill writes numbers between -1 and 1 to the beginning of b: what lies beyond is compared nowhere.
func (t *Tuner) fill(b gpu.Buffer, from *rand.Rand) error {
	t.Set.breathe()
	values := make([]float32, min(b.Size(), 4*t.bytes())/4)
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
		n := min(b.Size(), t.bytes())
		p, err := dev.NewProgram("tune: read", []gpu.Command{{CopySrc: b, CopyDst: back, CopySize: n}})
		if err != nil {
			return nil, err
		}
		defer p.Release()
		if err := dev.Submit(p); err != nil {
			return nil, err
		}
		o := output{name: b.Label(), data: make([]byte, n), half: i >= len(tr.out) && tr.kv == quant.KVF16}
		if i < len(tr.out) {
			o.columns, o.stride = tr.columns, tr.stride
		}
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
			if a.columns > 0 && k%a.stride >= a.columns {
				continue
			}
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
func Hash() string { return wgsl.Hash() }
