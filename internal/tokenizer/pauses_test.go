package tokenizer

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"
)

// largeModel is a tokenizer.model of n pieces of six characters, and one for what is unknown.
func largeModel(n int) []byte {
	var file []byte
	field := func(msg []byte, num int, content []byte) []byte {
		msg = append(msg, byte(num<<3|2))
		return append(binary.AppendUvarint(msg, uint64(len(content))), content...)
	}
	for i := range n {
		piece := field(nil, 1, fmt.Appendf(nil, "%06x", i))
		piece = binary.LittleEndian.AppendUint32(append(piece, 2<<3|5), math.Float32bits(float32(-i)))
		kind := byte(typeNormal)
		if i == 0 {
			kind = byte(typeUnknown)
		}
		file = field(file, 1, append(piece, 3<<3, kind))
	}
	return field(file, 2, []byte{3 << 3, 2}) // BPE
}

// TestLargeModelsAreReadInPieces counts the pauses; how long the stretches between them are is for the machine to say.
func TestLargeModelsAreReadInPieces(t *testing.T) {
	file := largeModel(100_000)
	start := time.Now()
	last, longest, pauses := start, time.Duration(0), 0
	tok, err := New(Files{Model: file, Breathe: func() {
		now := time.Now()
		longest, last = max(longest, now.Sub(last)), now
		pauses++
	}})
	if err != nil {
		t.Fatal(err)
	}
	whole := time.Since(start)
	longest = max(longest, time.Since(last))
	t.Logf("%d pauses in %v, the longest stretch is %v", pauses, whole, longest)
	if tok.NumTokens() != 100_000 || pauses < 300 {
		t.Errorf("%d tokens with %d pauses", tok.NumTokens(), pauses)
	}
}
