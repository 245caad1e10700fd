package engine

import (
	"errors"
	"fmt"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/planner"
	"github.com/pagelight/pagelight/internal/sample"
)

// ErrClosed says that the engine was closed.
var ErrClosed = errors.New("engine is closed")

// ErrQueueFull says that as many requests wait as may: try again later.
var ErrQueueFull = errors.New("the waiting queue is full")

// ContextLengthError says that a prompt (and the tokens asked for) do not fit.
type ContextLengthError struct {
	PromptTokens int // tokens of the prompt
	MaxTokens    int // new tokens that were asked for; 0 when none were
	MaxModelLen  int // tokens that fit
}

func (e *ContextLengthError) Error() string {
	if e.MaxTokens > 0 {
		return fmt.Sprintf("this model's maximum context length is %d tokens, but %d were requested (%d in the prompt, %d for the answer)",
			e.MaxModelLen, e.PromptTokens+e.MaxTokens, e.PromptTokens, e.MaxTokens)
	}
	return fmt.Sprintf("this model's maximum context length is %d tokens, but the prompt has %d", e.MaxModelLen, e.PromptTokens)
}

// ParamError says which field of a request has a value that cannot be used.
type ParamError struct {
	Field  string // in the wire's spelling: "temperature"
	Reason string
}

func (e *ParamError) Error() string { return e.Field + ": " + e.Reason }

// Remedy is a change of configuration with which a model fits.
type Remedy = planner.Remedy

// MemoryError says that the device does not grant the memory that a model needs.
type MemoryError struct {
	What       string   // "weights", "KV cache"
	Need, Have int64    // bytes; Have is 0 when the device does not say
	Remedies   []Remedy // what would fit, when the budget is at fault
	Err        error    // what the device said
}

func (e *MemoryError) Error() string {
	text := fmt.Sprintf("not enough memory for the %s: needs %d bytes%s", e.What, e.Need, readable(e.Need))
	if e.Have > 0 {
		text += fmt.Sprintf(", %d%s are available", e.Have, readable(e.Have))
	}
	return text
}

// readable is a number of bytes for people, in brackets, unless it is readable as it is.
func readable(n int64) string {
	v, unit := float64(n), ""
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if v < 1024 {
			break
		}
		v, unit = v/1024, u
	}
	if unit == "" {
		return ""
	}
	return fmt.Sprintf(" (%.4g %s)", v, unit)
}

func (e *MemoryError) Unwrap() error { return e.Err }

// TemplateError says that a model's chat template is broken or goes on for too long: the model is at fault, not the request.
// A conversation that the template itself refuses is a ParamError.
type TemplateError struct {
	File string // "chat_template.jinja", or "tokenizer_config.json" when it is in there
	Err  error
}

func (e *TemplateError) Error() string {
	return fmt.Sprintf("%s: the model's chat template cannot be used: %v", e.File, e.Err)
}

func (e *TemplateError) Unwrap() error { return e.Err }

// ErrDeviceLost says that the device was reset or removed while it was working.
var ErrDeviceLost = gpu.ErrDeviceLost

// ErrOutOfMemory says that the device could not give the memory asked for.
var ErrOutOfMemory = gpu.ErrOutOfMemory

// ErrNoAdapter says that there is no device of the kind asked for.
var ErrNoAdapter = gpu.ErrNoAdapter

// ErrInvalidLogits says that the model computed NaN or infinite logits, from which no token can be chosen.
var ErrInvalidLogits = sample.ErrNaN
