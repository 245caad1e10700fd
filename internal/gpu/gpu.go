// Package gpu is the device seam: the few things that Pagelight asks of whatever runs its kernels. Each driver
// (wgpunative, webgpujs, cpu) implements Device; nothing above this package knows which one it has.
//
// The seam is a way to run prepared programs, not a tensor library. Everything that costs something is made once
// (buffers, pipelines, bind groups, programs); a step writes a few bytes, submits programs and reads a few bytes back.
//
// A Device and what it made are used by one goroutine at a time, except that Lost, Info and Limits may be called from
// anywhere. Methods block the calling goroutine; in the browser they must not be called inside a js.Func callback.
package gpu

import "context"

// Kind says what does the arithmetic.
type Kind string

// The kinds of device, in order of preference.
const (
	KindHardware Kind = "gpu"      // a real GPU
	KindSoftware Kind = "software" // a GPU interface on the processor: llvmpipe, SwiftShader, WARP
	KindCPU      Kind = "cpu"      // Pagelight's own reference kernels, no GPU interface
)

// Info describes the adapter behind a Device, for people and for choosing kernels.
type Info struct {
	Kind    Kind   `json:"kind"`
	Name    string `json:"name"`    // as a person knows it: "NVIDIA H200", "llvmpipe (LLVM 15.0.6, 256 bits)"
	Vendor  string `json:"vendor"`  // "nvidia", "google", "mesa", or a PCI id
	Backend string `json:"backend"` // "Vulkan", "Metal", "WebGPU", "Go"
	Driver  string `json:"driver"`  // the driver package: "wgpunative", "webgpujs", "cpu"
	// BarrierFree asks for kernels without workgroup barriers: on adapters that run on a processor a barrier costs a
	// context switch per invocation.
	BarrierFree bool `json:"barrier_free"`
	// Features are the optional features of WebGPU and of WGSL that the device has and that kernels may use ("shader-f16", "subgroups",
	// "subgroup_id").
	Features []string `json:"features,omitempty"`
	// SubgroupMin and SubgroupMax bound the size of subgroups, powers of two; 0 where there are none or it is not told.
	SubgroupMin int `json:"subgroup_min,omitempty"`
	SubgroupMax int `json:"subgroup_max,omitempty"`
}

// Limits are the limits that matter to the engine, in bytes, invocations or workgroups.
type Limits struct {
	MaxBufferSize       int64 `json:"max_buffer_size"`
	MaxStorageBinding   int64 `json:"max_storage_binding"`    // largest range that one binding can show
	MaxStorageBuffers   int   `json:"max_storage_buffers"`    // per shader stage
	MaxWorkgroupMemory  int   `json:"max_workgroup_memory"`   // bytes
	MaxInvocations      int   `json:"max_invocations"`        // per workgroup
	MaxWorkgroupsPerDim int   `json:"max_workgroups_per_dim"` // 65,535 by default
	OffsetAlignment     int   `json:"offset_alignment"`       // of uniform and storage bindings; 256 suits all
	MaxUniformBinding   int64 `json:"max_uniform_binding"`    // bytes
}

// DefaultLimits are those that WebGPU guarantees on every device.
var DefaultLimits = Limits{
	MaxBufferSize: 256 << 20, MaxStorageBinding: 128 << 20, MaxStorageBuffers: 8, MaxWorkgroupMemory: 16 << 10,
	MaxInvocations: 256, MaxWorkgroupsPerDim: 65535, OffsetAlignment: 256, MaxUniformBinding: 64 << 10,
}

// Usage says what a buffer is for. A buffer that is mapped for reading has no other use but CopyDst.
type Usage uint32

// The uses of a buffer; they combine, except MapRead, which goes with CopyDst only.
const (
	UsageStorage Usage = 1 << iota
	UsageUniform
	UsageCopySrc
	UsageCopyDst
	UsageMapRead
)

// Buffer is device memory. Its content is zero when made.
type Buffer interface {
	Label() string
	Size() int64 // bytes, a multiple of 4
	Release()    // frees the memory once submitted work no longer needs it; more than one call is harmless
}

// BindingKind says how a kernel sees a buffer.
type BindingKind uint8

// The kinds of binding.
const (
	BindUniform   BindingKind = iota // var<uniform>
	BindRead                         // var<storage, read>
	BindReadWrite                    // var<storage, read_write>
)

// PipelineDesc is everything a driver needs to build one kernel.
type PipelineDesc struct {
	Label  string            // kernel name and what specialises it, for error messages
	Kernel string            // the entry point of Source, and the name by which the cpu driver knows the kernel
	Source string            // complete WGSL, constants already edited
	Consts map[string]uint32 // the values of the specialised constants, for the cpu driver
	// Layout lists the bindings 0, 1, ... of group 0.
	Layout []BindingKind
}

// Pipeline is a compiled kernel.
type Pipeline interface{ Release() }

// Binding is a range of a buffer. Size 0 means up to the buffer's end.
type Binding struct {
	Buffer       Buffer
	Offset, Size int64 // bytes; Offset is a multiple of Limits.OffsetAlignment
}

// BindGroup is a set of bindings ready for use. It fits every pipeline that has the same Layout.
type BindGroup interface{ Release() }

// Command is one element of a program: a dispatch when Pipeline is set, else a copy.
type Command struct {
	Pipeline  Pipeline
	BindGroup BindGroup
	Grid      [3]uint32 // workgroups; no element is 0

	CopySrc, CopyDst        Buffer // a copy of CopySize bytes; offsets and size are multiples of 4
	CopySrcOffset           int64
	CopyDstOffset, CopySize int64
}

// Program is a recorded list of commands that can be submitted again and again. Each command sees what the ones before
// it wrote.
type Program interface{ Release() }

// Device runs kernels.
type Device interface {
	Info() Info
	Limits() Limits

	// NewBuffer allocates size bytes (rounded up to a multiple of 4). The error wraps ErrOutOfMemory when memory is the
	// reason.
	NewBuffer(label string, size int64, usage Usage) (Buffer, error)
	// WriteBuffer puts data into dst before the next Submit takes effect. offset and len(data) are multiples of 4. data
	// may be reused at once.
	WriteBuffer(dst Buffer, offset int64, data []byte) error

	// NewPipelines compiles kernels, at the same time where the platform can. done, if not nil, is called after each one.
	// An error names the kernel and carries the compiler's message.
	NewPipelines(ctx context.Context, descs []PipelineDesc, done func(label string)) ([]Pipeline, error)
	// NewBindGroup binds buffers to the bindings 0, 1, ... of layout.
	NewBindGroup(label string, layout []BindingKind, bindings []Binding) (BindGroup, error)
	// NewProgram records commands.
	NewProgram(label string, commands []Command) (Program, error)

	// Submit starts the programs, in order, as one submission. A fault that the platform reports late (in the browser)
	// is returned by the Read or Wait that follows.
	Submit(programs ...Program) error
	// Read waits for everything submitted and then copies from src, which has UsageMapRead, into dst. It never returns
	// bytes that the device has not finished writing. When ctx ends first it returns ctx.Err(), and the device stays usable.
	Read(ctx context.Context, src Buffer, offset int64, dst []byte) error
	// Fetch begins to read the first size bytes of src, which has UsageMapRead, as they are when everything submitted so far is
	// done. What is submitted afterwards goes on meanwhile; until Wait has returned, no submission and no other read may use
	// src. Several fetches of different buffers may be under way; they are waited for in the order in which they were begun.
	Fetch(src Buffer, size int64) (Fetch, error)
	// Wait returns when everything submitted is done.
	Wait(ctx context.Context) error

	// Lost is closed when the device can no longer be used; Err then says why and wraps ErrDeviceLost.
	Lost() <-chan struct{}
	Err() error
	// Close releases the device and all that it made.
	Close()
}

// Fetch is a read-back that has begun.
type Fetch interface {
	// Wait returns when the bytes are in dst, which has the size that was asked for, whether or not what was submitted after the
	// fetch began is done. It is called exactly once. When ctx ends first it returns ctx.Err(), and src can be used again.
	Wait(ctx context.Context, dst []byte) error
}

// Profiler is implemented by devices that can time single commands.
type Profiler interface {
	// Profile runs a program by itself, repeat times after a first run that does not count, each command in a pass of its own, and
	// gives the shortest time that each command took on the device, in nanoseconds; copies take none. It returns
	// ErrNoTimestamps where the device has no clock.
	Profile(ctx context.Context, p Program, repeat int) ([]int64, error)
}

// Compiler is implemented by devices that compile while they are used for other things: weights arrive meanwhile.
type Compiler interface {
	// StartPipelines begins what NewPipelines does. One build is under way at a time. An error of another call may then be that
	// of a kernel; the build's Wait says so.
	StartPipelines(descs []PipelineDesc) (Build, error)
}

// Build is a compilation that has begun.
type Build interface {
	// Wait returns the pipelines, in the order of their descriptions, when all are made. done is as that of NewPipelines.
	// Wait is called exactly once, also to give the build up: with a context that has ended it frees what was made and returns ctx.Err().
	Wait(ctx context.Context, done func(label string)) ([]Pipeline, error)
}

// Blob is a run of bytes that may live outside the Go heap (an ArrayBuffer in the browser, a mapped file).
type Blob interface {
	Size() int64
	ReadAt(p []byte, off int64) (int, error)
}

// BlobWriter is implemented by devices that can copy a Blob of theirs into a buffer without passing it through the Go
// heap. handled is false when the blob is not of a kind that the device knows; the caller then uses ReadAt and WriteBuffer.
type BlobWriter interface {
	WriteBlob(dst Buffer, offset int64, src Blob, srcOffset, size int64) (handled bool, err error)
}
