// Package kernels wraps the WGSL kernels for the engine: arguments with shapes, checks, the choice of a variant, grids, and the
// bytes that each moves. There is one Go file for each kernel file in wgsl, of the same name; the _serial variants lie with
// their plain sibling, and linear.go, attention.go and argmax.go hold the ops that choose among several kernels.
//
// A Set makes ops, compiles what they need, and owns everything they hold. An op is built once; its commands are recorded
// once for each bucket of rows and then replayed, so that a step allocates nothing.
//
// It knows the device seam and the layout of weights, but no model and no driver.
//
// Letters used for shapes: M rows of a step, S sequences, H query heads, G key and value heads, D head dimension, K inputs and
// N outputs of a linear layer.
package kernels

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/wgsl"
)

// BlockSize is the number of tokens in a block of the KV cache.
const BlockSize = 16

// NoSlot is the slot of a token whose key and value are not stored.
const NoSlot = 0xFFFFFFFF

// NoID is what Argmax gives for a row that has a NaN among its logits.
const NoID = 0xFFFFFFFF

// StepBytes is the size of the uniform Step that each op is given: {rows, 0, 0, 0} as little-endian u32.
const StepBytes = 16

// Op is a kernel, or a few of them, bound to buffers.
type Op interface {
	// Name is the kernel's name, or that of the op when it has several kernels.
	Name() string
	// Record is the op's commands for a bucket of rows: any step of at most that many rows. It panics before Compile.
	Record(rows int) []gpu.Command
	// RecordLong is Record for steps that have contexts of LongContext positions or more: right for any others too.
	RecordLong(rows int) []gpu.Command
	// Traffic is the number of bytes that a step of rows rows must move to and from memory at the least. What depends on
	// the content of a step, such as the length of contexts, is left out.
	Traffic(rows int) int64
}

// Weight is a weight matrix [Rows, K] on the device, cut into parts of rows by the limit on bindings or where the format
// changes. Parts lie in order and cover all rows.
type Weight struct {
	Rows, K int
	Parts   []Part
}

// Part is some rows of a Weight.
type Part struct {
	Row0, Rows int
	Format     quant.Format
	// Data has Rows*Format.RowBytes(K) bytes, rounded up to a multiple of 16. Scales has Rows*Format.ScaleBytes(K), and is nil
	// for formats without groups.
	Data, Scales gpu.Buffer
}

// Set makes and owns ops. Like the Device, it is used by one goroutine at a time.
type Set struct {
	// Breathe, if not nil, is called now and then while ops are built and measured: where there is one thread, others get their turn.
	Breathe func()

	dev    gpu.Device
	limits gpu.Limits
	tuning Tuning

	subgroups sizes

	choosable map[string][]string  // by key of an op: its variants, the default first
	trials    map[string][]*trial  // by key: the ops that it is a choice of
	trial     *trial               // the op under construction, nil when it has no choice
	trying    bool                 // ops are built by a Tuner
	pipelines map[string]*pipeline // by kernel and constants
	wanted    []*pipeline          // not compiled yet
	build     gpu.Build            // that makes the first building of wanted; nil: none is under way
	building  int
	groups    []gpu.BindGroup

	arena []gpu.Buffer           // Params, in slots
	used  int                    // slots of the last arena buffer
	slots map[string]gpu.Binding // by content: equal Params share a slot
	dummy gpu.Buffer             // stands for inputs that an op does not have

	scratch     []gpu.Buffer // the last one serves the ops that are built from now on
	scratchSize int64        // what ops not finished yet need
	unfinished  []func(scratch gpu.Buffer) error
}

// The arena of Params: slots of 256 bytes, the alignment that every device accepts.
const (
	slotBytes     = 256
	slotsPerArena = 512
)

// New makes a Set whose ops suit dev.
func New(dev gpu.Device) *Set { return NewTuned(dev, TuningFor(dev.Info())) }

// NewTuned makes a Set with a given choice of variants.
func NewTuned(dev gpu.Device, tuning Tuning) *Set {
	return &Set{
		dev: dev, limits: dev.Limits(), tuning: tuning, subgroups: subgroupSizes(dev.Info()),
		choosable: map[string][]string{}, trials: map[string][]*trial{}, pipelines: map[string]*pipeline{}, slots: map[string]gpu.Binding{},
	}
}

// choose picks the variant of an op for buckets of up to rows rows. key says all that speed depends on (kernel, format, K, N, rows);
// variants are the names of those that the device can run and Deterministic allows, the default first.
func (s *Set) choose(key string, rows int, variants ...string) string {
	s.choosable[key] = variants
	if s.trial != nil {
		s.trial.rows[key] = max(s.trial.rows[key], rows)
	}
	if v := s.tuning.Choices[key]; slices.Contains(variants, v) {
		return v
	}
	for _, p := range s.tuning.Prefer {
		for _, v := range variants {
			if v == p || strings.HasSuffix(v, " "+p) {
				return v
			}
		}
	}
	return variants[0]
}

// Choosable lists the variants of the ops built so far, by key, the default first.
func (s *Set) Choosable() map[string][]string { return maps.Clone(s.choosable) }

func (s *Set) breathe() {
	if s.Breathe != nil {
		s.Breathe()
	}
}

// Fuses says whether steps of few rows should use the kernels that do several layers' work. They sum in another order than those
// for more rows.
func (s *Set) Fuses() bool { return s.tuning.Fuse && !s.tuning.Deterministic && !s.tuning.BarrierFree }

// Joins says whether steps of many rows should use the kernels that do what follows a layer too. The order of their sums is that of
// the kernels by themselves.
func (s *Set) Joins() bool { return !s.tuning.BarrierFree }

// Names lists the kernels that ops so far need, without what specialises them, in order.
func (s *Set) Names() []string {
	seen := map[string]bool{}
	for _, p := range s.pipelines {
		seen[p.desc.Kernel] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

// Pending is the number of pipelines that the next Compile will make.
func (s *Set) Pending() int { return len(s.wanted) }

// Start begins to compile what the ops built so far need, where the device can do so while it is used for other things. Compile
// then waits for it.
func (s *Set) Start() error {
	c, ok := s.dev.(gpu.Compiler)
	if !ok || len(s.wanted) == 0 || s.build != nil {
		return nil
	}
	b, err := c.StartPipelines(s.descs())
	if err != nil {
		return fmt.Errorf("kernels: %w", err)
	}
	s.build, s.building = b, len(s.wanted)
	return nil
}

func (s *Set) descs() []gpu.PipelineDesc {
	descs := make([]gpu.PipelineDesc, len(s.wanted))
	for i, p := range s.wanted {
		descs[i] = p.desc
	}
	return descs
}

// Compile makes every pipeline that the ops built so far need and that has not been made yet. progress, if not nil, is told
// how far it is.
func (s *Set) Compile(ctx context.Context, progress func(done, total int)) error {
	total, done := len(s.wanted), 0
	tell := func(string) {
		done++
		if progress != nil {
			progress(done, total)
		}
	}
	if s.build != nil {
		b, n := s.build, s.building
		s.build, s.building = nil, 0
		made, err := b.Wait(ctx, tell)
		if err := s.take(made, n, err); err != nil {
			return err
		}
	}
	if len(s.wanted) > 0 {
		made, err := s.dev.NewPipelines(ctx, s.descs(), tell)
		if err := s.take(made, len(s.wanted), err); err != nil {
			return err
		}
	}
	if len(s.unfinished) == 0 {
		return nil
	}
	if err := s.growScratch(); err != nil {
		return err
	}
	for _, finish := range s.unfinished {
		if err := finish(s.scratch[len(s.scratch)-1]); err != nil {
			return err
		}
	}
	s.unfinished = nil
	return nil
}

// take gives the first n pipelines that are wanted what was made of them.
func (s *Set) take(made []gpu.Pipeline, n int, err error) error {
	if err != nil {
		return fmt.Errorf("kernels: %w", err)
	}
	for i, p := range s.wanted[:n] {
		p.made = made[i]
	}
	s.wanted = s.wanted[n:]
	return nil
}

// growScratch sees to it that the last scratch buffer is large enough for the ops not finished yet. Earlier ones stay, for
// the ops that are bound to them.
func (s *Set) growScratch() error {
	if n := len(s.scratch); n > 0 && s.scratch[n-1].Size() >= s.scratchSize {
		return nil
	}
	buf, err := s.dev.NewBuffer("kernels scratch", s.scratchSize, gpu.UsageStorage)
	if err != nil {
		return fmt.Errorf("kernels: scratch: %w", err)
	}
	s.scratch = append(s.scratch, buf)
	return nil
}

// Release frees all that the ops hold. No op may be used after it.
func (s *Set) Release() {
	if s.build != nil {
		given, up := context.WithCancel(context.Background())
		up()
		_, _ = s.build.Wait(given, nil) // frees what it has made
	}
	for _, g := range s.groups {
		g.Release()
	}
	for _, p := range s.pipelines {
		if p.made != nil {
			p.made.Release()
		}
	}
	for _, b := range slices.Concat(s.arena, s.scratch) {
		b.Release()
	}
	if s.dummy != nil {
		s.dummy.Release()
	}
	breathe := s.Breathe
	*s = *NewTuned(s.dev, s.tuning)
	s.Breathe = breathe
}

// pipeline is one specialised kernel, compiled or not.
type pipeline struct {
	desc gpu.PipelineDesc
	made gpu.Pipeline
}

// pipeline finds or describes the kernel name with the given constants. format is that of the weights, if it has any.
func (s *Set) pipeline(name string, format *quant.Format, consts wgsl.Consts) (*pipeline, error) {
	label := labelOf(name, format, consts)
	if p, ok := s.pipelines[label]; ok { // every layer asks for the same
		return p, nil
	}
	desc, err := Describe(name, format, consts)
	if err != nil {
		return nil, err
	}
	p := &pipeline{desc: desc}
	s.pipelines[label] = p
	s.wanted = append(s.wanted, p)
	return p, nil
}

// labelOf is the kernel and what specialises it.
func labelOf(name string, format *quant.Format, consts wgsl.Consts) string {
	label := name
	if format != nil {
		label += " " + format.String()
	}
	for _, c := range slices.Sorted(maps.Keys(consts)) {
		label += " " + c + "=" + strconv.FormatUint(uint64(consts[c]), 10)
	}
	return label
}

// Describe is what a driver needs to build the kernel name for weights of a format (nil for kernels without weights) and
// constants. Its Label says everything that specialises it.
func Describe(name string, format *quant.Format, consts wgsl.Consts) (gpu.PipelineDesc, error) {
	kernel, ok := wgsl.Find(name)
	if !ok || kernel.Weights != (format != nil) {
		panic("BUG: kernel " + name)
	}
	label, libs, edits := labelOf(name, format, consts), slices.Clone(kernel.Libs), wgsl.Consts{}
	if _, ok := consts["SEGMENT"]; ok {
		libs, _ = wgsl.WithSubgroups(libs)
	}
	maps.Copy(edits, consts)
	if format != nil {
		file, lib := weightLib(*format)
		libs = append(libs, file)
		maps.Copy(edits, lib)
	}
	source, err := wgsl.Source(name, libs, edits)
	if err != nil {
		return gpu.PipelineDesc{}, fmt.Errorf("kernels: %s: %w", label, err)
	}
	if format != nil {
		edits["WEIGHT"] = uint32(format.Kind) // for the cpu driver; no constant in the text
	}
	layout := make([]gpu.BindingKind, len(kernel.Bindings))
	for i, b := range kernel.Bindings {
		layout[i] = map[wgsl.Access]gpu.BindingKind{
			wgsl.Uniform: gpu.BindUniform, wgsl.Read: gpu.BindRead, wgsl.ReadWrite: gpu.BindReadWrite,
		}[b.Access]
	}
	return gpu.PipelineDesc{Label: label, Kernel: name, Source: source, Consts: edits, Layout: layout}, nil
}

// bind makes a bind group for p: params goes into a slot of the arena, buffers are the bindings from 2 on, nil for an
// input that the op does not have.
func (s *Set) bind(p *pipeline, params any, step gpu.Binding, buffers ...gpu.Buffer) (gpu.BindGroup, error) {
	list := make([]gpu.Binding, len(buffers))
	for i, b := range buffers {
		list[i].Buffer = b
	}
	return s.bindRanges(p, params, step, list...)
}

// bindRanges is bind with ranges of buffers.
func (s *Set) bindRanges(p *pipeline, params any, step gpu.Binding, ranges ...gpu.Binding) (gpu.BindGroup, error) {
	s.breathe()
	name := p.desc.Kernel
	if step.Buffer == nil || step.Offset%slotBytes != 0 || step.Buffer.Size() < step.Offset+StepBytes {
		return nil, fmt.Errorf("kernels: %s: Step needs %d bytes at an offset that is a multiple of %d", name, StepBytes, slotBytes)
	}
	step.Size = StepBytes
	slot, err := s.params(params)
	if err != nil {
		return nil, fmt.Errorf("kernels: %s: params: %w", name, err)
	}
	bindings := []gpu.Binding{slot, step}
	if len(ranges)+2 != len(p.desc.Layout) {
		panic(fmt.Sprintf("BUG: %s has %d bindings, not %d", name, len(p.desc.Layout), len(ranges)+2))
	}
	kernel, _ := wgsl.Find(name)
	for i, b := range ranges {
		if b.Buffer == nil {
			if b.Buffer, err = s.dummyBuffer(); err != nil {
				return nil, err
			}
		}
		if size := b.Buffer.Size(); b.Size == 0 && size > s.limits.MaxStorageBinding {
			return nil, fmt.Errorf("kernels: %s: %s has %d bytes, the device binds %d at most",
				name, kernel.Bindings[i+2].Name, size, s.limits.MaxStorageBinding)
		}
		for j, other := range bindings[2:] {
			written := p.desc.Layout[i+2] == gpu.BindReadWrite || p.desc.Layout[j+2] == gpu.BindReadWrite
			if other.Buffer == b.Buffer && written {
				return nil, fmt.Errorf("kernels: %s: %s and %s are one buffer, and one of them is written",
					name, kernel.Bindings[j+2].Name, kernel.Bindings[i+2].Name)
			}
		}
		bindings = append(bindings, b)
	}
	group, err := s.dev.NewBindGroup(p.desc.Label, p.desc.Layout, bindings)
	if err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", name, err)
	}
	s.groups = append(s.groups, group)
	return group, nil
}

// params is a slot that holds the Params v.
func (s *Set) params(v any) (gpu.Binding, error) {
	data := encode(v)
	if slot, ok := s.slots[string(data)]; ok {
		return slot, nil
	}
	if len(s.arena) == 0 || s.used == slotsPerArena {
		buf, err := s.dev.NewBuffer("kernels params", slotsPerArena*slotBytes, gpu.UsageUniform|gpu.UsageCopyDst)
		if err != nil {
			return gpu.Binding{}, err
		}
		s.arena, s.used = append(s.arena, buf), 0
	}
	// All of the slot is bound: wgpu 0.19 holds a kernel's Params to the size that the kernel before it wanted, if the kinds of their
	// bindings are the same.
	slot := gpu.Binding{Buffer: s.arena[len(s.arena)-1], Offset: int64(s.used) * slotBytes, Size: slotBytes}
	if err := s.dev.WriteBuffer(slot.Buffer, slot.Offset, data); err != nil {
		return gpu.Binding{}, err
	}
	s.used++
	s.slots[string(data)] = slot
	return slot, nil
}

// dummyBuffer stands for an input that an op does not have.
func (s *Set) dummyBuffer() (gpu.Buffer, error) {
	if s.dummy == nil {
		buf, err := s.dev.NewBuffer("kernels dummy", dummyBytes, gpu.UsageStorage)
		if err != nil {
			return nil, fmt.Errorf("kernels: dummy: %w", err)
		}
		s.dummy = buf
	}
	return s.dummy, nil
}

// later has finish called by Compile with a scratch buffer of at least size bytes. Ops share it: what one leaves there is
// used up by its own next kernel.
func (s *Set) later(size int64, finish func(scratch gpu.Buffer) error) {
	s.scratchSize = max(s.scratchSize, size)
	s.unfinished = append(s.unfinished, finish)
}

// reserve sees to it that the scratch buffer has at least size bytes, so that it is as large whichever variants were chosen.
func (s *Set) reserve(size int64) {
	if size > 0 {
		s.later(size, func(gpu.Buffer) error { return nil })
	}
}
