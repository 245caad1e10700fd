//go:build js && wasm

package webgpujs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"syscall/js"

	"github.com/pagelight/pagelight/internal/gpu"
)

// The codes of notify in static/gpu.js.
const (
	codeOK = iota
	codeInvalid
	codeMemory
	codeLost
	codeNoWebGPU
	codeInsecure
	codeNoAdapter
)

const (
	lostToken = -1

	maxScratch = 4 << 20  // bytes that one call of WriteBuffer moves at a time
	maxStaged  = 64 << 20 // bytes written without a pause; the browser keeps them twice until they are done
	maxBlobRun = 16 << 20 // bytes of one queue.writeBuffer from a blob
)

// result is what notify says.
type result struct {
	token, code, value int
	message            string
}

func (r result) err(what string) error {
	switch r.code {
	case codeOK:
		return nil
	case codeMemory:
		return fmt.Errorf("webgpujs: %s: %w: %s", what, gpu.ErrOutOfMemory, r.message)
	case codeLost:
		return fmt.Errorf("webgpujs: %s: %w: %s", what, gpu.ErrDeviceLost, r.message)
	default:
		return fmt.Errorf("webgpujs: %s: %w: %s", what, gpu.ErrInvalid, r.message)
	}
}

// Device is the browser's GPU. It implements gpu.Device and gpu.BlobWriter.
type Device struct {
	info   gpu.Info
	limits gpu.Limits

	handle js.Value // what open of gpu.js gave
	notify js.Func
	f      funcs

	writeScratch, readScratch js.Value // Uint8Arrays that belong to gpu.js
	writeSize, readSize       int
	args                      []any // reused by Submit
	staged                    int64 // bytes written since the last pause
	lastToken                 int

	lost chan struct{}

	mu      sync.Mutex // guards what follows, which notify and the caller's goroutine share
	waiting map[int]chan<- result
	lostErr error
	closed  bool
}

// funcs are the functions of the handle, looked up once: a property costs microseconds.
type funcs struct {
	newBuffer, releaseBuffer, growWrite, growRead, writeBuffer, writeBlob js.Value
	newPipeline, releasePipeline                                          js.Value
	newBindGroup, releaseBindGroup, newProgram, releaseProgram            js.Value
	submit, read, cancelRead, wait, forget, close                         js.Value
}

var (
	_ gpu.Device     = (*Device)(nil)
	_ gpu.BlobWriter = (*Device)(nil)
)

// Open asks the browser for its best adapter and a device on it, with all of the adapter's limits and those optional
// features that kernels can use. An error that wraps gpu.ErrNoAdapter is an *AdapterError and says why there is none.
func Open(ctx context.Context) (*Device, error) {
	g, err := library()
	if err != nil {
		return nil, err
	}
	d := &Device{lost: make(chan struct{}), waiting: make(map[int]chan<- result)}
	opened := make(chan result, 1)
	d.waiting[0] = opened
	d.notify = js.FuncOf(func(_ js.Value, args []js.Value) any {
		d.deliver(result{token: args[0].Int(), code: args[1].Int(), value: args[2].Int(), message: args[3].String()})
		return nil
	})
	d.handle = g.Call("open", d.notify)
	get := d.handle.Get
	d.f = funcs{
		newBuffer: get("newBuffer"), releaseBuffer: get("releaseBuffer"), growWrite: get("growWrite"),
		growRead: get("growRead"), writeBuffer: get("writeBuffer"), writeBlob: get("writeBlob"),
		newPipeline: get("newPipeline"), releasePipeline: get("releasePipeline"),
		newBindGroup: get("newBindGroup"), releaseBindGroup: get("releaseBindGroup"),
		newProgram: get("newProgram"), releaseProgram: get("releaseProgram"),
		submit: get("submit"), read: get("read"), cancelRead: get("cancelRead"), wait: get("wait"),
		forget: get("forget"), close: get("close"),
	}
	select {
	case r := <-opened:
		if r.code != codeOK {
			d.Close()
			return nil, adapterError(r)
		}
	case <-ctx.Done():
		d.Close() // destroys a device that comes later
		return nil, ctx.Err()
	}
	d.info, d.limits = facts(get("facts"))
	return d, nil
}

// Probe describes the adapter that Open would use without opening a device.
func Probe(ctx context.Context) (gpu.Info, gpu.Limits, error) {
	g, err := library()
	if err != nil {
		return gpu.Info{}, gpu.Limits{}, err
	}
	done := make(chan result, 1)
	notify := js.FuncOf(func(_ js.Value, args []js.Value) any {
		done <- result{code: args[1].Int(), message: args[3].String()}
		return nil
	})
	defer notify.Release()
	handle := g.Call("probe", notify)
	select {
	case r := <-done:
		if r.code != codeOK {
			return gpu.Info{}, gpu.Limits{}, adapterError(r)
		}
	case <-ctx.Done():
		handle.Call("cancel") // notify is not called any more
		return gpu.Info{}, gpu.Limits{}, ctx.Err()
	}
	info, limits := facts(handle.Get("facts"))
	return info, limits, nil
}

func library() (js.Value, error) {
	g := js.Global().Get("pagelightGPU")
	if g.Type() != js.TypeObject {
		return js.Value{}, &AdapterError{Reason: ReasonNoWebGPU, Message: "gpu.js is not loaded"}
	}
	return g, nil
}

func adapterError(r result) error {
	reason := ReasonNoAdapter
	switch r.code {
	case codeNoWebGPU:
		reason = ReasonNoWebGPU
	case codeInsecure:
		reason = ReasonInsecure
	}
	return &AdapterError{Reason: reason, Message: r.message}
}

// facts reads what describe of gpu.js found.
func facts(v js.Value) (gpu.Info, gpu.Limits) {
	str := func(name string) string { return v.Get(name).String() }
	info := newInfo(adapterFacts{
		vendor: str("vendor"), architecture: str("architecture"), device: str("device"),
		description: str("description"), features: str("features"), software: v.Get("software").Bool(),
	})
	get := v.Get("limits").Get
	number := func(name string, fallback int64) int64 {
		n := get(name)
		if n.Type() != js.TypeNumber {
			return fallback
		}
		return int64(n.Float())
	}
	def := gpu.DefaultLimits
	return info, gpu.Limits{
		MaxBufferSize:       number("maxBufferSize", def.MaxBufferSize),
		MaxStorageBinding:   number("maxStorageBufferBindingSize", def.MaxStorageBinding),
		MaxStorageBuffers:   int(number("maxStorageBuffersPerShaderStage", int64(def.MaxStorageBuffers))),
		MaxWorkgroupMemory:  int(number("maxComputeWorkgroupStorageSize", int64(def.MaxWorkgroupMemory))),
		MaxInvocations:      int(number("maxComputeInvocationsPerWorkgroup", int64(def.MaxInvocations))),
		MaxWorkgroupsPerDim: int(number("maxComputeWorkgroupsPerDimension", int64(def.MaxWorkgroupsPerDim))),
		OffsetAlignment: int(max(number("minStorageBufferOffsetAlignment", int64(def.OffsetAlignment)),
			number("minUniformBufferOffsetAlignment", int64(def.OffsetAlignment)))),
		MaxUniformBinding: number("maxUniformBufferBindingSize", def.MaxUniformBinding),
	}
}

// deliver runs inside a JavaScript callback and must not block.
func (d *Device) deliver(r result) {
	if r.token == lostToken {
		d.markLost(r.message)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if c, ok := d.waiting[r.token]; ok {
		delete(d.waiting, r.token)
		c <- r // has room for every token that it waits for
	}
}

func (d *Device) markLost(why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lostErr == nil {
		d.lostErr = fmt.Errorf("webgpujs: %w: %s", gpu.ErrDeviceLost, why)
		close(d.lost)
	}
}

// expect makes a token whose result goes to c.
func (d *Device) expect(c chan<- result) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lastToken++
	d.waiting[d.lastToken] = c
	return d.lastToken
}

// drop forgets a token: its result, should it come, goes nowhere.
func (d *Device) drop(token int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.waiting, token)
}

// await waits for the only token of c. When it gives up it runs abandon, which tells gpu.js.
func (d *Device) await(ctx context.Context, c <-chan result, token int, abandon func()) (result, error) {
	var err error
	select {
	case r := <-c:
		return r, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-d.lost:
		err = d.Err()
	}
	d.drop(token)
	abandon()
	return result{}, err
}

// Info describes the adapter.
func (d *Device) Info() gpu.Info { return d.info }

// Limits are what the device was opened with.
func (d *Device) Limits() gpu.Limits { return d.limits }

// Lost is closed when the browser takes the device away, or Close was called.
func (d *Device) Lost() <-chan struct{} { return d.lost }

// Err says why the device was lost; nil while it was not.
func (d *Device) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lostErr
}

// Close destroys the device and its buffers.
func (d *Device) Close() {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return
	}
	d.closed = true
	d.mu.Unlock()
	d.markLost("closed")
	d.f.close.Invoke() // notify is not called any more
	d.notify.Release()
}

type buffer struct {
	d        *Device
	label    string
	size     int64
	usage    gpu.Usage
	id       int
	released bool
}

func (b *buffer) Label() string { return b.label }
func (b *buffer) Size() int64   { return b.size }

func (b *buffer) Release() {
	if b.released {
		return
	}
	b.released = true
	b.d.f.releaseBuffer.Invoke(b.id)
}

// The bits of GPUBufferUsage.
const (
	usageMapRead = 0x1
	usageCopySrc = 0x4
	usageCopyDst = 0x8
	usageUniform = 0x40
	usageStorage = 0x80
)

func usageBits(u gpu.Usage) int {
	bits := 0
	for _, p := range [...]struct {
		usage gpu.Usage
		bit   int
	}{
		{gpu.UsageStorage, usageStorage},
		{gpu.UsageUniform, usageUniform},
		{gpu.UsageCopySrc, usageCopySrc},
		{gpu.UsageCopyDst, usageCopyDst},
		{gpu.UsageMapRead, usageMapRead},
	} {
		if u&p.usage != 0 {
			bits |= p.bit
		}
	}
	return bits
}

// invalid makes the error of a call that breaks the contract and need not reach the browser.
func invalid(format string, args ...any) error {
	return fmt.Errorf("webgpujs: %w: %s", gpu.ErrInvalid, fmt.Sprintf(format, args...))
}

// NewBuffer allocates size bytes.
func (d *Device) NewBuffer(label string, size int64, usage gpu.Usage) (gpu.Buffer, error) {
	if err := d.Err(); err != nil {
		return nil, err
	}
	size = (size + 3) &^ 3
	switch {
	case size <= 0:
		return nil, invalid("buffer %q of %d bytes", label, size)
	case size > d.limits.MaxBufferSize:
		return nil, fmt.Errorf("webgpujs: buffer %q of %d bytes: %w: the largest buffer is %d bytes", label, size,
			gpu.ErrOutOfMemory, d.limits.MaxBufferSize)
	}
	c := make(chan result, 1)
	token := d.expect(c)
	d.f.newBuffer.Invoke(token, label, float64(size), usageBits(usage))
	r, err := d.await(context.Background(), c, token, func() { d.f.forget.Invoke(token) })
	if err != nil {
		return nil, err
	}
	if err := r.err(fmt.Sprintf("buffer %q of %d bytes", label, size)); err != nil {
		return nil, err
	}
	return &buffer{d: d, label: label, size: size, usage: usage, id: r.value}, nil
}

// own checks that b belongs to d, still exists and has a use.
func (d *Device) own(b gpu.Buffer, usage gpu.Usage, what string) (*buffer, error) {
	p, ok := b.(*buffer)
	switch {
	case !ok || p.d != d:
		return nil, invalid("%s of a buffer of another device", what)
	case p.released:
		return nil, invalid("%s of buffer %q, which was released", what, p.label)
	case p.usage&usage != usage:
		return nil, invalid("%s of buffer %q, which was not made for that", what, p.label)
	}
	return p, nil
}

// checkRange checks a range that must be aligned to 4 bytes.
func (b *buffer) checkRange(what string, offset, size int64) error {
	if offset < 0 || size < 0 || offset%4 != 0 || size%4 != 0 || offset > b.size-size {
		return invalid("%s of %d bytes at %d of buffer %q (%d bytes)", what, size, offset, b.label, b.size)
	}
	return nil
}

// stage gives the write scratch with room for at least size bytes.
func (d *Device) stage(size int) js.Value {
	if d.writeSize < size {
		d.writeSize = max(64<<10, nextPow2(size))
		d.writeScratch = d.f.growWrite.Invoke(d.writeSize)
	}
	return d.writeScratch
}

func nextPow2(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// WriteBuffer puts data into dst.
func (d *Device) WriteBuffer(dst gpu.Buffer, offset int64, data []byte) error {
	if err := d.Err(); err != nil {
		return err
	}
	b, err := d.own(dst, gpu.UsageCopyDst, "write")
	if err != nil {
		return err
	}
	if err := b.checkRange("write", offset, int64(len(data))); err != nil {
		return err
	}
	for part := range slices.Chunk(data, maxScratch) {
		js.CopyBytesToJS(d.stage(len(part)), part)
		d.f.writeBuffer.Invoke(b.id, float64(offset), len(part))
		offset += int64(len(part))
		if err := d.pace(len(part)); err != nil {
			return err
		}
	}
	return nil
}

// pace lets the device catch up when much was written: until then the browser holds every byte a second time.
func (d *Device) pace(n int) error {
	if d.staged += int64(n); d.staged < maxStaged {
		return nil
	}
	return d.Wait(context.Background())
}

// WriteBlob copies a *Blob into dst without passing it through the Go heap.
func (d *Device) WriteBlob(dst gpu.Buffer, offset int64, src gpu.Blob, srcOffset, size int64) (bool, error) {
	blob, ok := src.(*Blob)
	if !ok {
		return false, nil
	}
	if err := d.Err(); err != nil {
		return true, err
	}
	b, err := d.own(dst, gpu.UsageCopyDst, "write")
	if err != nil {
		return true, err
	}
	if err := b.checkRange("write", offset, size); err != nil {
		return true, err
	}
	if err := blob.checkRange(srcOffset, size); err != nil {
		return true, err
	}
	for size > 0 {
		n := min(size, maxBlobRun)
		d.f.writeBlob.Invoke(b.id, float64(offset), blob.id, float64(srcOffset), float64(n))
		offset, srcOffset, size = offset+n, srcOffset+n, size-n
		if err := d.pace(int(n)); err != nil {
			return true, err
		}
	}
	return true, nil
}

type pipeline struct {
	d        *Device
	label    string
	kinds    string
	id       int
	released bool
}

func (p *pipeline) Release() {
	if p.released {
		return
	}
	p.released = true
	p.d.f.releasePipeline.Invoke(p.id)
}

// kindsOf writes a layout as gpu.js wants it: one letter a binding.
func kindsOf(layout []gpu.BindingKind) string {
	b := make([]byte, len(layout))
	for i, k := range layout {
		b[i] = "urw"[k]
	}
	return string(b)
}

// NewPipelines compiles all kernels at the same time.
func (d *Device) NewPipelines(ctx context.Context, descs []gpu.PipelineDesc, done func(string)) ([]gpu.Pipeline, error) {
	if err := d.Err(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := make(chan result, len(descs))
	index := make(map[int]int, len(descs)) // token -> place in descs
	for i, desc := range descs {
		token := d.expect(c)
		index[token] = i
		d.f.newPipeline.Invoke(token, kindsOf(desc.Layout), desc.Label, desc.Kernel, desc.Source)
	}
	made := make([]gpu.Pipeline, len(descs))
	failures := make([]error, len(descs))
	giveUp := func(err error) ([]gpu.Pipeline, error) {
		for token := range index {
			d.drop(token)
			d.f.forget.Invoke(token)
		}
		for _, p := range made {
			if p != nil {
				p.Release()
			}
		}
		return nil, err
	}
	for len(index) > 0 {
		select {
		case r := <-c:
			i := index[r.token]
			delete(index, r.token)
			if r.code != codeOK {
				failures[i] = r.err("kernel " + descs[i].Label)
				continue
			}
			made[i] = &pipeline{d: d, label: descs[i].Label, kinds: kindsOf(descs[i].Layout), id: r.value}
			if done != nil {
				done(descs[i].Label)
			}
		case <-ctx.Done():
			return giveUp(ctx.Err())
		case <-d.lost:
			return giveUp(d.Err())
		}
	}
	if err := errors.Join(failures...); err != nil {
		return giveUp(err)
	}
	return made, nil
}

type bindGroup struct {
	d        *Device
	kinds    string
	id       int
	released bool
}

func (g *bindGroup) Release() {
	if g.released {
		return
	}
	g.released = true
	g.d.f.releaseBindGroup.Invoke(g.id)
}

// numbers passes a list of numbers to gpu.js, which finds them in the write scratch.
func (d *Device) numbers(list []float64) {
	bytes := make([]byte, 0, 8*len(list))
	for _, v := range list {
		bytes = binary.LittleEndian.AppendUint64(bytes, math.Float64bits(v))
	}
	js.CopyBytesToJS(d.stage(len(bytes)), bytes)
}

// NewBindGroup binds buffers. What the browser finds wrong beyond the checks made here comes from the next Read or Wait.
func (d *Device) NewBindGroup(label string, layout []gpu.BindingKind, bindings []gpu.Binding) (gpu.BindGroup, error) {
	if err := d.Err(); err != nil {
		return nil, err
	}
	if len(layout) != len(bindings) {
		return nil, invalid("bind group %q has %d bindings for a layout of %d", label, len(bindings), len(layout))
	}
	list := make([]float64, 0, 3*len(bindings))
	for i, bind := range bindings {
		usage, limit := gpu.UsageStorage, d.limits.MaxStorageBinding
		if layout[i] == gpu.BindUniform {
			usage, limit = gpu.UsageUniform, d.limits.MaxUniformBinding
		}
		what := fmt.Sprintf("bind group %q: binding %d", label, i)
		b, err := d.own(bind.Buffer, usage, what)
		if err != nil {
			return nil, err
		}
		size := bind.Size
		if size == 0 {
			size = b.size - bind.Offset
		}
		if err := b.checkRange(what, bind.Offset, size); err != nil {
			return nil, err
		}
		switch {
		case size == 0:
			return nil, invalid("%s is empty", what)
		case bind.Offset%int64(d.limits.OffsetAlignment) != 0:
			return nil, invalid("%s: offset %d is no multiple of %d", what, bind.Offset, d.limits.OffsetAlignment)
		case size > limit:
			return nil, invalid("%s: %d bytes of buffer %q, the largest binding is %d", what, size, b.label, limit)
		}
		list = append(list, float64(b.id), float64(bind.Offset), float64(size))
	}
	d.numbers(list)
	kinds := kindsOf(layout)
	return &bindGroup{d: d, kinds: kinds, id: d.f.newBindGroup.Invoke(label, kinds, len(list)).Int()}, nil
}

type program struct {
	d        *Device
	id       any // an int, boxed once for Submit
	released bool
}

func (p *program) Release() {
	if p.released {
		return
	}
	p.released = true
	p.d.f.releaseProgram.Invoke(p.id)
}

// NewProgram records commands; Submit then replays them with one call.
func (d *Device) NewProgram(label string, commands []gpu.Command) (gpu.Program, error) {
	if err := d.Err(); err != nil {
		return nil, err
	}
	list := make([]float64, 0, 6*len(commands))
	for i, cmd := range commands {
		var err error
		if cmd.Pipeline != nil {
			list, err = d.appendDispatch(list, cmd)
		} else {
			list, err = d.appendCopy(list, cmd)
		}
		if err != nil {
			return nil, fmt.Errorf("program %q, command %d: %w", label, i, err)
		}
	}
	d.numbers(list)
	return &program{d: d, id: d.f.newProgram.Invoke(label, len(list)).Int()}, nil
}

func (d *Device) appendDispatch(list []float64, cmd gpu.Command) ([]float64, error) {
	p, ok := cmd.Pipeline.(*pipeline)
	if !ok || p.d != d || p.released {
		return nil, invalid("dispatch of a pipeline of another device, or one that was released")
	}
	g, ok := cmd.BindGroup.(*bindGroup)
	switch {
	case !ok || g.d != d || g.released:
		return nil, invalid("dispatch of %s with a bind group of another device, or one that was released", p.label)
	case g.kinds != p.kinds:
		return nil, invalid("dispatch of %s: its layout is %q, that of the bind group %q", p.label, p.kinds, g.kinds)
	}
	for _, n := range cmd.Grid {
		if n == 0 || int(n) > d.limits.MaxWorkgroupsPerDim {
			return nil, invalid("dispatch of %s with a grid of %v workgroups", p.label, cmd.Grid)
		}
	}
	return append(list, float64(p.id), float64(g.id), float64(cmd.Grid[0]), float64(cmd.Grid[1]), float64(cmd.Grid[2]), 0), nil
}

func (d *Device) appendCopy(list []float64, cmd gpu.Command) ([]float64, error) {
	src, err := d.own(cmd.CopySrc, gpu.UsageCopySrc, "copy")
	if err != nil {
		return nil, err
	}
	dst, err := d.own(cmd.CopyDst, gpu.UsageCopyDst, "copy")
	if err != nil {
		return nil, err
	}
	if err := src.checkRange("copy", cmd.CopySrcOffset, cmd.CopySize); err != nil {
		return nil, err
	}
	if err := dst.checkRange("copy", cmd.CopyDstOffset, cmd.CopySize); err != nil {
		return nil, err
	}
	if src == dst {
		return nil, invalid("copy within buffer %q", src.label)
	}
	return append(list, 0, float64(src.id), float64(cmd.CopySrcOffset), float64(dst.id), float64(cmd.CopyDstOffset),
		float64(cmd.CopySize)), nil
}

// Submit replays programs.
func (d *Device) Submit(programs ...gpu.Program) error {
	if err := d.Err(); err != nil {
		return err
	}
	d.args = d.args[:0]
	for _, p := range programs {
		p, ok := p.(*program)
		if !ok || p.d != d || p.released {
			return invalid("submission of a program of another device, or one that was released")
		}
		d.args = append(d.args, p.id)
	}
	d.f.submit.Invoke(d.args...)
	return nil
}

// Read copies from a buffer that the device has finished with. A fault of an earlier Submit is returned here, and what was
// read is not.
func (d *Device) Read(ctx context.Context, src gpu.Buffer, offset int64, dst []byte) error {
	if err := d.Err(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	b, err := d.own(src, gpu.UsageMapRead, "read")
	if err != nil {
		return err
	}
	if offset < 0 || offset > b.size-int64(len(dst)) {
		return invalid("read of %d bytes at %d of buffer %q (%d bytes)", len(dst), offset, b.label, b.size)
	}
	if len(dst) == 0 {
		return d.Wait(ctx)
	}
	if d.readSize < len(dst) {
		d.readSize = max(64<<10, nextPow2(len(dst)))
		d.readScratch = d.f.growRead.Invoke(d.readSize)
	}
	c := make(chan result, 1)
	token := d.expect(c)
	d.f.read.Invoke(token, b.id, float64(offset), len(dst))
	r, err := d.await(ctx, c, token, func() { d.f.cancelRead.Invoke(token, b.id) })
	if err != nil {
		return err
	}
	if err := r.err("read of buffer " + b.label); err != nil {
		return err
	}
	d.staged = 0
	js.CopyBytesToGo(dst, d.readScratch)
	return nil
}

// Wait returns when everything submitted is done, with the fault of an earlier Submit if there was one.
func (d *Device) Wait(ctx context.Context) error {
	if err := d.Err(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c := make(chan result, 1)
	token := d.expect(c)
	d.f.wait.Invoke(token)
	r, err := d.await(ctx, c, token, func() { d.f.forget.Invoke(token) })
	if err != nil {
		return err
	}
	d.staged = 0
	return r.err("wait")
}

// adapterFacts is what the browser says about an adapter.
type adapterFacts struct {
	vendor, architecture, device, description, features string
	software                                            bool
}

func newInfo(f adapterFacts) gpu.Info {
	info := gpu.Info{Kind: gpu.KindHardware, Vendor: f.vendor, Backend: "WebGPU", Driver: "webgpujs"}
	for _, name := range []string{f.description, f.device, strings.TrimSpace(f.vendor + " " + f.architecture)} {
		if name != "" && info.Name == "" {
			info.Name = name
		}
	}
	if info.Name == "" {
		info.Name = "unnamed adapter" // Firefox and Safari may say nothing at all
	}
	if f.features != "" {
		info.Features = strings.Split(f.features, ",")
	}
	if f.software {
		info.Kind, info.BarrierFree = gpu.KindSoftware, true
	}
	return info
}
