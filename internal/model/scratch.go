package model

import (
	"slices"

	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/weights"
)

// ScratchBytes is the size of what NewForward allocates. largest is that of the largest buffer among it, which one binding
// has to show.
func ScratchBytes(cfg *weights.Config, s Shape) (sum, largest int64) {
	q, kv := cfg.NumHeads*cfg.HeadDim, cfg.NumKVHeads*cfg.HeadDim
	perToken := []int{cfg.HiddenSize, q + 2*kv, 2 * slices.Max(widths(cfg))} // x, qkv, gate_up
	// last, logits, ids, draws, top, top_sums
	perLogits := []int{cfg.HiddenSize, cfg.VocabSize, 1, 4, 2 * TopK, 2}
	add := func(size int64) {
		size = max(size, leastBuffer)
		sum, largest = sum+size, max(largest, size)
	}
	for _, n := range perToken {
		add(4 * int64(n) * int64(s.MaxTokens))
	}
	add(inputBytes(s.MaxTokens, cfg.HiddenSize))                       // h
	add(inputBytes(s.MaxTokens, q))                                    // attn
	add(inputBytes(s.MaxTokens, widths(cfg)...))                       // act
	add(4 * int64(kernels.FusedRows*kernels.MaxShares*cfg.HiddenSize)) // shares
	for _, n := range perLogits {
		add(4 * int64(n) * int64(s.MaxLogits))
	}
	add(inputBytes(s.MaxLogits, cfg.HiddenSize)) // last_normed
	for _, n := range []int{kernels.StateBytes / 4, kernels.MaxStops, kernels.SamplerBytes / 4, kernels.RingSlots} {
		add(4 * int64(n) * int64(s.MaxSeqs))
	}
	if cfg.MoE != nil {
		for _, n := range mixtureWords(cfg, s.MaxTokens) {
			add(4 * int64(n))
		}
	}
	if cfg.Reordered {
		for _, k := range orderedWidths(cfg) {
			add(inputBytes(max(s.MaxTokens, s.MaxLogits), k))
		}
	}
	add(2 * StepSlot)
	add(16 * int64(max(s.MaxTokens, kernels.FusedRows))) // tokens
	add(4 * int64(max(s.MaxLogits, kernels.FusedRows)))  // logit_rows
	add(4 * int64(s.MaxSeqs) * int64(s.MaxBlocksPerSeq))
	add(ropeTableBytes(cfg, s.MaxBlocksPerSeq*blockSize))
	return sum, largest
}

// LinearShapes are those of the linear layers of a step.
func LinearShapes(cfg *weights.Config, s Shape) []kernels.LinearShape {
	q, kv, hidden := cfg.NumHeads*cfg.HeadDim, cfg.NumKVHeads*cfg.HeadDim, cfg.HiddenSize
	list := []kernels.LinearShape{{Rows: s.MaxTokens, N: q + 2*kv, K: hidden}, {Rows: s.MaxTokens, N: hidden, K: q}, {Rows: s.MaxLogits, N: cfg.VocabSize, K: hidden}}
	for _, n := range widths(cfg) {
		list = append(list, kernels.LinearShape{Rows: s.MaxTokens, N: 2 * n, K: hidden}, kernels.LinearShape{Rows: s.MaxTokens, N: hidden, K: n})
	}
	if cfg.MoE != nil {
		list = append(list, kernels.LinearShape{Rows: s.MaxTokens, N: cfg.MoE.NumExperts, K: hidden})
	}
	return list
}

// inputBytes is the size of a buffer that linear layers read rows rows of, of any of the given widths.
func inputBytes(rows int, widths ...int) (size int64) {
	for _, n := range widths {
		size = max(size, 4*int64(n)*int64(kernels.InputRows(rows, n)))
	}
	return size
}

// widths are those of the MLPs.
func widths(cfg *weights.Config) []int {
	if cfg.MoE != nil && cfg.MoE.SharedExpertSize > 0 {
		return []int{cfg.IntermediateSize, cfg.MoE.SharedExpertSize}
	}
	return []int{cfg.IntermediateSize}
}

// orderedWidths are the widths of all inputs of linear layers, which may have to be put in the order of a matrix's columns.
func orderedWidths(cfg *weights.Config) []int {
	all := append(widths(cfg), cfg.HiddenSize, cfg.NumHeads*cfg.HeadDim)
	slices.Sort(all)
	return slices.Compact(all)
}
