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
	perToken := []int{cfg.HiddenSize, q + 2*kv, 2 * widest(cfg), 4} // x, qkv, gate_up, tokens
	inputs := []int{cfg.HiddenSize, q, widest(cfg)}                 // h, attn, act
	// last, logits, ids, draws, top, top_sums, logit_rows
	perLogits := []int{cfg.HiddenSize, cfg.VocabSize, 1, 4, 2 * TopK, 2, 1}
	add := func(size int64) {
		size = max(size, leastBuffer)
		sum, largest = sum+size, max(largest, size)
	}
	for _, n := range perToken {
		add(4 * int64(n) * int64(s.MaxTokens))
	}
	for _, n := range inputs {
		add(4 * int64(n) * int64(kernels.InputRows(s.MaxTokens, n)))
	}
	for _, n := range perLogits {
		add(4 * int64(n) * int64(s.MaxLogits))
	}
	add(4 * int64(cfg.HiddenSize) * int64(kernels.InputRows(s.MaxLogits, cfg.HiddenSize))) // last_normed
	if cfg.Reordered {
		for _, k := range orderedWidths(cfg) {
			add(4 * int64(k) * int64(kernels.InputRows(max(s.MaxTokens, s.MaxLogits), k)))
		}
	}
	add(2 * StepSlot)
	add(4 * int64(s.MaxSeqs) * int64(s.MaxBlocksPerSeq))
	add(ropeTableBytes(cfg, s.MaxBlocksPerSeq*blockSize))
	return sum, largest
}

// orderedWidths are the widths of all inputs of linear layers, which may have to be put in the order of a matrix's columns.
func orderedWidths(cfg *weights.Config) []int {
	widths := []int{cfg.HiddenSize, cfg.NumHeads * cfg.HeadDim, widest(cfg)}
	slices.Sort(widths)
	return slices.Compact(widths)
}
