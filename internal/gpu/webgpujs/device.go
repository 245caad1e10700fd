//go:build js && wasm

package webgpujs

import (
	"context"
	"encoding/binary"
	"fmt"
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
	codeNoTimestamps
)

const (
	lostToken = -1

	maxScratch = 4 << 20  // bytes that one call of WriteBuffer moves at a time
	maxStaged  = 64 << 20 // bytes written without a pause; the browser keeps them twice until they are done
	maxBlobRun = 4 << 20  // bytes of one queue.writeBuffer from a blob; a slow machine copies them in 4 ms
	slice      = 8 << 20  // bytes written without a turn of the event loop
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
	event  js.Value // Uint8Array of gpu.js: the notification under way
	words  [12]byte // a copy of it
	f      funcs

	writeScratch, readScratch js.Value // Uint8Arrays that belong to gpu.js
	writeSize, readSize       int
	sequence                  js.Value // Uint8Array of gpu.js that holds the programs of a submission
	sequenceSize              int      // programs
	submitted, submitting     []byte   // what sequence holds, and what is to be submitted: little-endian i32
	staged                    int64    // bytes written since the device was last waited for
	sliced                    int      // bytes written since the event loop had a turn
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
	growSequence, submit, read, takeRead, cancelRead, wait, profile       js.Value
	message, forget, close                                                js.Value
}

var (
	_ gpu.Device     = (*Device)(nil)
	_ gpu.BlobWriter = (*Device)(nil)
	_ gpu.Compiler   = (*Device)(nil)
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
	d.notify = js.FuncOf(func(js.Value, []js.Value) any {
		d.notified()
		return nil
	})
	d.handle = g.Call("open", d.notify)
	get := d.handle.Get
	d.event = get("event")
	d.f = funcs{
		newBuffer: get("newBuffer"), releaseBuffer: get("releaseBuffer"), growWrite: get("growWrite"),
		growRead: get("growRead"), writeBuffer: get("writeBuffer"), writeBlob: get("writeBlob"),
		newPipeline: get("newPipeline"), releasePipeline: get("releasePipeline"),
		newBindGroup: get("newBindGroup"), releaseBindGroup: get("releaseBindGroup"),
		newProgram: get("newProgram"), releaseProgram: get("releaseProgram"),
		growSequence: get("growSequence"), submit: get("submit"),
		read: get("read"), takeRead: get("takeRead"), cancelRead: get("cancelRead"), wait: get("wait"), profile: get("profile"),
		message: get("message"), forget: get("forget"), close: get("close"),
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
		subgroupMin: v.Get("subgroupMin").Int(), subgroupMax: v.Get("subgroupMax").Int(),
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

// notified takes over a notification: three little-endian i32, and a message if there is something to say.
func (d *Device) notified() {
	js.CopyBytesToGo(d.words[:], d.event)
	word := func(i int) int { return int(int32(binary.LittleEndian.Uint32(d.words[4*i:]))) }
	r := result{token: word(0), code: word(1), value: word(2)}
	if r.code != codeOK {
		r.message = d.f.message.Invoke().String()
	}
	d.deliver(r)
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
