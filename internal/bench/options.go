package bench

import (
	"fmt"
	"slices"

	"github.com/pagelight/pagelight/engine"
)

// Options say what to measure. Lists that hold nothing but 0, or nothing, leave a kind of test out.
type Options struct {
	Prompts     []int `json:"n_prompt"` // lengths of prompts
	Gens        []int `json:"n_gen"`    // lengths of single answers
	Depths      []int `json:"n_depth"`  // tokens before a single answer
	Batches     []int `json:"batch"`    // answers at once
	Repetitions int   `json:"repetitions"`
	NoProfile   bool  `json:"no_profile,omitempty"`

	Progress func(Progress) `json:"-"` // is told what is being done; may be nil
	Measured func(Test)     `json:"-"` // is told what a test gave, once its answers were right; later ones may be wrong. May be nil
}

// DefaultOptions are the figures of docs/benchmarks.md.
func DefaultOptions() Options {
	return Options{Prompts: []int{512, 2048}, Gens: []int{128}, Depths: []int{0, 4096}, Batches: []int{1, 8, 32, 64, 128}, Repetitions: 5}
}

// What each of many answers at once has, as llama-batched-bench was run.
const (
	BatchPrompt = 128
	BatchGen    = 64
)

// Check says what is wrong with o, as an *engine.ParamError.
func (o *Options) Check() error {
	for _, l := range []struct {
		name string
		list []int
		most int
	}{
		{"n_prompt", o.Prompts, maxTokens}, {"n_gen", o.Gens, maxTokens}, {"n_depth", o.Depths, maxTokens}, {"batch", o.Batches, maxBatch},
	} {
		for _, n := range l.list {
			if n < 0 || n > l.most {
				return &engine.ParamError{Field: l.name, Reason: fmt.Sprintf("must be 0 to %d, got %d", l.most, n)}
			}
		}
	}
	if o.Repetitions < 1 || o.Repetitions > 1000 {
		return &engine.ParamError{Field: "repetitions", Reason: fmt.Sprintf("must be 1 to 1000, got %d", o.Repetitions)}
	}
	if len(o.prompts())+len(o.gens())+len(o.batches()) == 0 {
		return &engine.ParamError{Field: "n_prompt, n_gen and batch", Reason: "leave nothing to measure"}
	}
	return nil
}

// The largest values that Options take.
const (
	maxTokens = 1 << 20
	maxBatch  = 256
)

func (o *Options) prompts() []int { return positive(o.Prompts) }
func (o *Options) gens() []int    { return positive(o.Gens) }
func (o *Options) batches() []int { return positive(o.Batches) }

func (o *Options) depths() []int {
	if len(o.Depths) == 0 {
		return []int{0}
	}
	return o.Depths
}

func positive(list []int) []int {
	return slices.DeleteFunc(slices.Clone(list), func(n int) bool { return n == 0 })
}

// slack is room for what is computed ahead, and for the cases of the check.
const slack = 160

// needs is the longest context and the most answers at once.
func (o *Options) needs() (length, seqs int) {
	seqs = 1
	for _, p := range o.prompts() {
		length = max(length, p+1)
	}
	for _, g := range o.gens() {
		for _, d := range o.depths() {
			length = max(length, max(d, 1)+g+1)
		}
	}
	for _, b := range o.batches() {
		// Each step that an answer starts before the last one makes all longer.
		length, seqs = max(length, BatchPrompt+BatchGen+ahead(b, 0)), max(seqs, b)
	}
	return length + slack, seqs
}

// What Progress.Doing may be.
const (
	DoingDevice  = "device"  // measuring the device: said by who does, before anything else uses it
	DoingCheck   = "check"   // asking for answers, and holding them to what is known
	DoingTest    = "test"    // timing
	DoingProfile = "profile" // timing kernels
)

// Progress says what is being done.
type Progress struct {
	Doing string `json:"doing"`
	KV    string `json:"kv"`
	Name  string `json:"name,omitempty"` // of the test or of the step; "" for answers before all tests
	Run   int    `json:"run"`            // of a test, from 1; 0 is the one that does not count
	Runs  int    `json:"runs"`
	Done  int    `json:"done"` // tests
	Total int    `json:"total"`
}

// String is for people.
func (p Progress) String() string {
	switch {
	case p.Doing == DoingDevice:
		return "measuring the device"
	case p.Doing == DoingProfile:
		return fmt.Sprintf("profile of %s, KV %s", p.Name, p.KV)
	case p.Doing == DoingCheck && p.Name == "":
		return fmt.Sprintf("checking answers, KV %s", p.KV)
	case p.Doing == DoingCheck:
		return fmt.Sprintf("%s, KV %s: checking the first token", p.Name, p.KV)
	case p.Run == 0:
		return fmt.Sprintf("%s, KV %s: warming up", p.Name, p.KV)
	}
	return fmt.Sprintf("%s, KV %s: run %d of %d", p.Name, p.KV, p.Run, p.Runs)
}
