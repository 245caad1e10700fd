package pack

import (
	"strings"

	"github.com/pagelight/pagelight/internal/weights"
)

// Sizes counts the bytes of all weights with their scales, the weights, and the bits a weight of the linear layers alone: all matrices
// but embedding and LM head.
func Sizes(src weights.Source) (bytes, count int64, linear float64) {
	var linearBits, linearCount int64
	for _, s := range weights.Tensors(src.Config()) {
		n := int64(s.Rows) * int64(s.K)
		count += n
		if s.Vector {
			bytes += 4 * n
			continue
		}
		info, err := src.Info(s.Name)
		if err != nil {
			continue // checked when the source was opened
		}
		b := bits(info.Format, s.Rows, s.K)
		bytes += b / 8
		if isLinear(s.Name) {
			linearBits, linearCount = linearBits+b, linearCount+n
		}
	}
	if linearCount > 0 {
		linear = float64(linearBits) / float64(linearCount)
	}
	return bytes, count, linear
}

// isLinear tells the linear layers from embedding and LM head.
func isLinear(name string) bool {
	return !strings.HasPrefix(name, "lm_head") && !strings.Contains(name, "embed_tokens")
}
