package webgpujs

import (
	"fmt"

	"github.com/pagelight/pagelight/internal/gpu"
)

// Reason says why a browser gives no adapter.
type Reason string

// The reasons; each asks for another remedy.
const (
	ReasonNoWebGPU  Reason = "no-webgpu"  // the browser does not know WebGPU
	ReasonInsecure  Reason = "insecure"   // WebGPU needs https or localhost
	ReasonNoAdapter Reason = "no-adapter" // no GPU that the browser is willing to use
)

// AdapterError is the error of Open and Probe; it wraps gpu.ErrNoAdapter.
type AdapterError struct {
	Reason  Reason
	Message string
}

func (e *AdapterError) Error() string {
	return fmt.Sprintf("webgpujs: %v: %s", gpu.ErrNoAdapter, e.Message)
}

func (e *AdapterError) Unwrap() error { return gpu.ErrNoAdapter }
