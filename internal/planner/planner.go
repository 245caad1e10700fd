// Package planner says what a model needs of a device's memory before anything is downloaded or allocated: weights, scratch
// and KV cache, in bytes, and what a stated budget holds of it.
//
// It is arithmetic over a configuration and a device's limits. The sizes of single buffers come from the packages that
// allocate them (model, kernels); that their sum is what a device is asked for is tested. Whoever allocates must still be ready
// for a refusal: WebGPU tells limits, not how much memory is free.
package planner

import (
	"fmt"
	"math"
	"sort"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/kvcache"
	"github.com/pagelight/pagelight/internal/model"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
)

// Request is what is to be planned.
type Request struct {
	Config *weights.Config
	// WeightBytes is the size of the weights as they are to be loaded, see weights.Source.Bytes. Each part of a matrix whose
	// size is no multiple of 16 bytes takes up to 12 bytes more.
	WeightBytes int64
	// Q4Bytes is their size in 4 bits, to be proposed where it helps; 0 when that is not to be had.
	Q4Bytes int64
	KV      quant.KVType

	Budget int64 // bytes for weights, scratch and cache together
	Device string
	Limits gpu.Limits
	Tuning kernels.Tuning

	MaxModelLen int // tokens of one sequence; 0: what the model was made for, or what fits
	MaxSeqs     int // in one step, at least 1
	MaxTokens   int // in one step, at least MaxSeqs
	MaxLogits   int // rows of logits in one step, at least MaxSeqs
	NumTokens   int // ids from here on are never picked; 0: the vocabulary
}

// Plan is what a budget holds. Sizes are in bytes.
type Plan struct {
	Fits bool `json:"fits"`

	// Need is the sum of Weights, Scratch and KV. When the plan does not fit they are those of the least that was asked for:
	// one sequence of MaxModelLen tokens, or one block when the context was left open.
	Need    int64 `json:"need"`
	Budget  int64 `json:"budget"`
	Weights int64 `json:"weights"`
	Scratch int64 `json:"scratch"` // activations, logits with where they are read back, rotary table, block tables, kernels' own
	KV      int64 `json:"kv"`

	KVType     string `json:"kv_type"`
	BlockBytes int64  `json:"block_bytes"` // keys and values of one block, all layers
	TokenBytes int64  `json:"token_bytes"` // the share of one token in it
	BlockSize  int    `json:"block_size"`  // tokens
	NumBlocks  int    `json:"num_blocks"`

	MaxModelLen int `json:"max_model_len"` // tokens of one sequence
	MaxSeqs     int `json:"max_num_seqs"`  // in one step
	// Sequences is how many of MaxModelLen tokens the cache holds at once, MaxSeqs at most; more run when they are shorter.
	Sequences int `json:"sequences"`
	// LongestContext is the largest MaxModelLen that the model and the device's limits allow, with any budget.
	LongestContext int `json:"longest_context"`
	// LargestContext is the largest MaxModelLen for which there is a plan that fits, 0 when there is none.
	LargestContext int `json:"largest_context"`
	// LargestConcurrency is how many sequences of MaxModelLen tokens the budget holds when as many rows of logits are
	// provided, at most MostSeqs.
	LargestConcurrency int `json:"largest_concurrency"`

	// Remedies are what would fit, when this does not: the smallest change first.
	Remedies []Remedy `json:"remedies,omitempty"`
}

// Remedy is a request, near to one that does not fit, that fits. A field that stays as it was is left out.
type Remedy struct {
	MaxModelLen int    `json:"max_model_len,omitempty"`
	MaxSeqs     int    `json:"max_num_seqs,omitempty"`
	KV          string `json:"kv,omitempty"`
	Quant       string `json:"quant,omitempty"`
	Budget      int64  `json:"gpu_memory,omitempty"`
	Need        int64  `json:"need"` // bytes of the least that was asked for
}

// MostSeqs bounds the sequences of a step: each takes a row of logits.
const MostSeqs = 256

// Make plans. An error means that no budget would help: the model or the device's limits do not allow what was asked for.
func Make(r Request) (Plan, error) {
	if r.NumTokens == 0 {
		r.NumTokens = r.Config.VocabSize
	}
	s, err := r.sizes()
	if err != nil {
		return Plan{}, err
	}
	blocks := s.most(r.Budget)
	p := Plan{
		Fits: blocks >= s.least, Budget: r.Budget, Weights: r.WeightBytes, KVType: r.KV.String(),
		BlockBytes: s.block, TokenBytes: s.block / kvcache.BlockSize, BlockSize: kvcache.BlockSize, MaxSeqs: r.MaxSeqs,
	}
	p.NumBlocks = max(blocks, s.least)
	p.MaxModelLen = min(s.longest, p.NumBlocks*kvcache.BlockSize)
	p.Scratch, p.KV, p.Need = s.scratch(p.NumBlocks), int64(p.NumBlocks)*s.block, s.need(p.NumBlocks)
	if p.Fits {
		p.Sequences = max(1, min(r.MaxSeqs, p.NumBlocks/kvcache.NumBlocksFor(p.MaxModelLen)))
	}
	p.LargestContext = r.largestContext()
	limitless := r
	limitless.Budget = math.MaxInt64
	p.LongestContext = limitless.largestContext()
	p.LargestConcurrency = r.largestConcurrency(p.MaxModelLen)
	if !p.Fits {
		p.Remedies = r.remedies(p.Need)
	}
	return p, nil
}

// sizes is a request in numbers that a search can use.
type sizes struct {
	*Request
	longest int   // tokens of one sequence
	perSeq  int   // blocks of one
	least   int   // blocks, else the plan does not fit
	cap     int   // blocks that can be of use, or that the device can bind
	block   int64 // bytes
}

// sizes checks a request against the model and the device.
func (r *Request) sizes() (s sizes, err error) {
	cfg := r.Config
	if r.MaxModelLen > cfg.MaxPositions {
		return s, fmt.Errorf("a context of %d tokens was asked for, but the model was made for %d", r.MaxModelLen, cfg.MaxPositions)
	}
	reach := model.MaxPositions(cfg, r.Limits)
	s = sizes{Request: r, longest: r.MaxModelLen, block: model.BlockBytes(cfg, r.KV)}
	if s.longest == 0 {
		s.longest = min(cfg.MaxPositions, reach/kvcache.BlockSize*kvcache.BlockSize)
	}
	s.perSeq = kvcache.NumBlocksFor(s.longest)
	s.least = max(1, kvcache.NumBlocksFor(r.MaxModelLen))
	s.cap = min(s.perSeq*r.MaxSeqs, model.MaxBlocks(cfg, r.KV, r.Limits))
	if tokens := min(s.cap*kvcache.BlockSize, reach); tokens < max(1, r.MaxModelLen) {
		return s, fmt.Errorf("a context of %d tokens was asked for, but on %s the kernels reach %d at most", max(1, r.MaxModelLen), r.Device, tokens)
	}
	_, largest := model.ScratchBytes(cfg, s.shape(s.least))
	if most := min(r.Limits.MaxStorageBinding, r.Limits.MaxBufferSize); largest > most {
		return s, fmt.Errorf("steps of %d tokens with %d rows of logits need a buffer of %d bytes, but %s binds %d at most",
			r.MaxTokens, r.MaxLogits, largest, r.Device, most)
	}
	return s, nil
}

// shape is that of a step with a cache of so many blocks: a sequence cannot be longer than the cache.
func (s *sizes) shape(blocks int) model.Shape {
	return model.Shape{
		MaxTokens: s.MaxTokens, MaxLogits: s.MaxLogits, MaxSeqs: s.MaxSeqs, NumTokens: s.NumTokens, MaxBlocksPerSeq: min(blocks, s.perSeq),
	}
}

// scratch is the size of all that is neither weights nor cache. It grows with the longest sequence that the cache can hold: each
// position has its row of the rotary table.
func (s *sizes) scratch(blocks int) int64 {
	shape := s.shape(blocks)
	forward, _ := model.ScratchBytes(s.Config, shape)
	back := 4 * int64(s.MaxLogits) * int64(s.Config.VocabSize+1+2+2*model.TopK) // logits, ids and candidates to read
	back += 4 * model.Flights * model.MaxBurst * int64(s.MaxSeqs)
	if !s.Tuning.BarrierFree {
		back += model.AdjustedBytes(s.Config, shape) // made when a request needs it; software adapters do without
	}
	own := s.Tuning.ScratchBytes(kernels.ScratchShape{
		Rows: s.MaxTokens, Heads: s.Config.NumHeads, HeadDim: s.Config.HeadDim, MaxBlocks: shape.MaxBlocksPerSeq,
		LogitRows: s.MaxLogits, Limit: s.NumTokens, Vocab: s.Config.VocabSize, Linears: model.LinearShapes(s.Config, shape),
	})
	return forward + back + own + kernels.FixedBytes
}

// need is the size of everything with a cache of so many blocks.
func (s *sizes) need(blocks int) int64 {
	return s.WeightBytes + s.scratch(blocks) + int64(blocks)*s.block
}

// most is the largest useful number of blocks that a budget holds.
func (s *sizes) most(budget int64) int {
	return sort.Search(s.cap, func(n int) bool { return s.need(n+1) > budget })
}

// fits says whether a request fits, and what it needs at the least.
func (r Request) fits() (need int64, ok bool) {
	s, err := r.sizes()
	if err != nil {
		return 0, false
	}
	need = s.need(s.least)
	return need, need <= r.Budget
}

// largestContext is the largest context of one sequence for which the request fits.
func (r Request) largestContext() int {
	return sort.Search(r.Config.MaxPositions, func(n int) bool {
		r.MaxModelLen = n + 1
		_, ok := r.fits()
		return !ok
	})
}

// largestConcurrency is how many sequences of a length fit at once.
func (r Request) largestConcurrency(length int) int {
	r.MaxModelLen = length
	return sort.Search(MostSeqs, func(n int) bool {
		r := r
		r.MaxSeqs, r.MaxLogits, r.MaxTokens = n+1, n+1, max(r.MaxTokens, n+1)
		s, err := r.sizes()
		blocks := (n + 1) * s.perSeq
		return err != nil || blocks > s.cap || s.need(blocks) > r.Budget
	})
}
