// Package bench measures an engine as llama.cpp's llama-bench and llama-batched-bench do: prompts, single answers at several
// depths, and many answers at once. It checks what the model says before and while it is timed, and gives no speed where that is
// wrong.
//
// It asks package engine for everything, so that it runs natively and in a tab; it knows no driver, no flags and no files.
package bench

import (
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
)

// Schema is the number of the report's form: it grows when a field changes its meaning. New fields do not change it.
const Schema = 1

// Report is a measurement with all that is needed to do it again. docs/benchmarks.md describes its JSON.
type Report struct {
	Schema  int       `json:"schema"`
	Tool    string    `json:"tool"`             // "pagelight bench", or "pagelight bench page"
	Version string    `json:"version"`          // of the program
	Commit  string    `json:"commit,omitempty"` // of its source, where the build says it
	Date    time.Time `json:"date"`
	Command []string  `json:"command,omitempty"`
	Machine Machine   `json:"machine"`
	Adapter gpu.Info  `json:"adapter"`
	Device  Device    `json:"device"`
	Options Options   `json:"options"`
	Runs    []Run     `json:"runs"` // one for each kind of KV cache
}

// Machine is where it ran.
type Machine struct {
	OS          string `json:"os,omitempty"`
	Arch        string `json:"arch,omitempty"`
	CPU         string `json:"cpu,omitempty"`
	Cores       int    `json:"cores,omitempty"`
	MemoryBytes int64  `json:"memory_bytes,omitempty"`
	Go          string `json:"go,omitempty"`
	GPUDriver   string `json:"gpu_driver,omitempty"` // version of the graphics driver, where the system tells it
	Browser     string `json:"browser,omitempty"`    // user agent of the tab
}

// Device is what the device can do whatever the model: the two bounds of the roofline.
type Device struct {
	CopyGBps   float64 `json:"copy_gb_per_s,omitempty"`       // bytes read and written by copying large buffers or by reading them, in 10^9 a second
	DispatchUS float64 `json:"dispatch_us,omitempty"`         // a small dispatch that depends on the one before it, encoded while others run
	SubmitUS   float64 `json:"submit_read_back_us,omitempty"` // one small dispatch from its submission until 4 bytes of it are on the host
	Note       string  `json:"note,omitempty"`                // why something is missing
}

// Run is what one engine did.
type Run struct {
	Model    Model     `json:"model"`
	KV       string    `json:"kv"`           // f16, f32, or int8, which is approximate
	OpenS    float64   `json:"open_seconds"` // from asking for the model until it could answer
	Kernels  []string  `json:"kernels"`
	Check    Check     `json:"check"`
	Tests    []Test    `json:"tests"` // empty when the check failed
	Profiles []Profile `json:"profiles,omitempty"`
	Token    *Token    `json:"token,omitempty"` // where the time of a token of a single answer goes
	LeftOut  []LeftOut `json:"left_out,omitempty"`
	Notes    []string  `json:"notes,omitempty"` // of the engine, and of what was left out
}

// LeftOut is a test that there was no room for.
type LeftOut struct {
	Name   string `json:"name"`
	What   string `json:"what,omitempty"` // of which there is too little: "context" (tokens), "answers" (at once), "blocks" (of the KV cache)
	Need   int    `json:"need,omitempty"`
	Have   int    `json:"have,omitempty"`
	Reason string `json:"reason"` // for people
}

// Model is what was measured.
type Model struct {
	Name         string `json:"name"`
	Architecture string `json:"architecture"`
	Parameters   int64  `json:"parameters"`
	Weights      string `json:"weights"` // formats: "q4g32"
	WeightBytes  int64  `json:"weight_bytes"`
}

// Check says whether the model's tokens were right.
type Check struct {
	// Verdict is "passed", "failed", or "approximate", where ids are not expected to be equal (KV caches of bytes).
	Verdict     string `json:"verdict"`
	KnownAnswer bool   `json:"known_answers"` // whether they come from another program; else they are the engine's own
	Source      string `json:"source"`        // whose answers they are
	// LeastMargin is the distance of the two best logits below which another choice is no fault: comparing ends there.
	LeastMargin float64     `json:"least_margin"`
	Cases       []CheckCase `json:"cases"`
}

// CheckCase is one case at one setting. Rows and runs of one case are counted together.
type CheckCase struct {
	Setting  string `json:"setting"`  // "batch 1", "batch 8", or the test's name for the runs that were timed
	Case     string `json:"case"`     // "one", "short", "block", ..; "own logits": each token held to the logits of the text before it; "token by token": the first one held to the prompt so computed
	Prompt   int    `json:"prompt"`   // tokens
	Answers  int    `json:"answers"`  // how often it was asked
	Compared int    `json:"compared"` // tokens of each answer up to the first narrow margin
	Wrong    int    `json:"wrong"`    // answers with another token among these
	At       int    `json:"at,omitempty"`
	Got      int32  `json:"got,omitempty"`  // of the first wrong answer, token At
	Want     int32  `json:"want,omitempty"` // -1: the logits call for another one
}

// Kinds of tests.
const (
	KindPrefill = "prefill" // a prompt until its first token
	KindDecode  = "decode"  // one answer, from its first token on
	KindBatch   = "batch"   // many answers at once, from when all have their first token on
)

// Test is one line of the table.
type Test struct {
	Name      string  `json:"name"` // "pp512", "tg128", "tg128 @ d4096", "b32 (pp128+tg64)"
	Kind      string  `json:"kind"`
	Prompt    int     `json:"n_prompt"`
	Gen       int     `json:"n_gen"`
	Depth     int     `json:"n_depth"`
	Batch     int     `json:"batch"`
	Speed     Speed   `json:"tokens_per_second"` // of prompts, or of all answers together
	LatencyMS float64 `json:"latency_ms"`        // median: until the first token of a prompt, else the time of a step
	Stages    *Stages `json:"stages,omitempty"`
}

// Speed is what the repetitions of a test gave.
type Speed struct {
	Median  float64   `json:"median"`
	Min     float64   `json:"min"`
	Max     float64   `json:"max"`
	SD      float64   `json:"sd"` // standard deviation
	Samples []float64 `json:"samples"`
}

// Stages says where the time of a step went as the host sees it, and what it took, on average of all runs: of a whole prompt in tests of
// prompts, else of a step from when all answers have their first token on. Encoding, waiting and the rest follow each other, so
// that they add up to the time of that step and none is negative; while the device works the host encodes what comes next, so waiting is
// not all that the device does.
type Stages struct {
	EncodeUS   float64 `json:"encode_us"` // writing inputs, encoding and submitting
	WaitUS     float64 `json:"wait_us"`   // waiting for the device and reading back
	HostUS     float64 `json:"host_us"`   // all else: scheduling, sampling, handing out
	Dispatches float64 `json:"dispatches"`
	Submits    float64 `json:"submits"`
	ReadBacks  float64 `json:"read_backs"`
	BytesRead  float64 `json:"bytes_read"` // from the device to the host
}

// Profile is the time of each kernel of a step, measured by itself.
type Profile struct {
	Step    string          `json:"step"` // "decode, 1 row at 128", "prompt, 512 rows at 0"
	Rows    int             `json:"rows"`
	Depth   int             `json:"depth"`
	StepUS  float64         `json:"step_us,omitempty"` // the whole step as it is submitted, by many in one submission
	SumUS   float64         `json:"sum_us,omitempty"`  // of the kernels
	PassUS  float64         `json:"pass_us,omitempty"` // that timing a kernel by itself adds to each dispatch; it is not in their times
	Kernels []KernelProfile `json:"kernels"`
	Note    string          `json:"note,omitempty"` // why there are no times
}

// KernelProfile is a kernel, with everything that specialises it, over a step.
type KernelProfile struct {
	Name   string  `json:"name"`
	Count  int     `json:"count"` // dispatches in the step
	EachUS float64 `json:"each_us,omitempty"`
	StepUS float64 `json:"step_us,omitempty"` // all of them
	Bytes  int64   `json:"bytes"`             // that all of them must move at the least
	GBps   float64 `json:"gb_per_s,omitempty"`
}

// Token is the account of one token of a single answer.
type Token struct {
	Test       string  `json:"test"`
	US         float64 `json:"us"`    // measured
	Bytes      int64   `json:"bytes"` // that a token must move at the least
	Dispatches int     `json:"dispatches"`
	BytesUS    float64 `json:"bytes_us"`      // these bytes at the device's bandwidth
	DispatchUS float64 `json:"dispatches_us"` // these dispatches at the device's cost
	Roofline   float64 `json:"roofline"`      // share of the speed that the larger of the two allows, 0 to 1
	Parts      []Part  `json:"parts"`         // add up to US
}

// Part is a line of the account.
type Part struct {
	Name string  `json:"name"`
	US   float64 `json:"us"`
	Note string  `json:"note,omitempty"`
}
