package planner

import (
	"fmt"
	"strings"

	"github.com/pagelight/pagelight/internal/quant"
)

// remedies lists what would fit in place of a request that does not.
func (r Request) remedies(need int64) (out []Remedy) {
	type change struct{ kv, q4, one bool }
	try := func(c change, shorter bool) bool {
		to, m := r, Remedy{}
		if c.kv {
			if r.KV == quant.KVI8 {
				return false
			}
			to.KV = quant.KVI8
			m.KV = to.KV.String()
		}
		if c.q4 {
			if r.Q4Bytes == 0 || r.Q4Bytes >= r.WeightBytes {
				return false
			}
			to.WeightBytes, m.Quant = r.Q4Bytes, "q4"
		}
		if c.one {
			if r.MaxSeqs == 1 || r.MaxLogits != r.MaxSeqs {
				return false
			}
			to.MaxSeqs, to.MaxLogits, m.MaxSeqs = 1, 1, 1
		}
		if shorter {
			if to.MaxModelLen = to.largestContext(); to.MaxModelLen == 0 {
				return false
			}
			m.MaxModelLen = to.MaxModelLen
		}
		var ok bool
		if m.Need, ok = to.fits(); ok {
			out = append(out, m)
		}
		return ok
	}
	if r.MaxModelLen > 0 {
		try(change{}, true)
	}
	singly := []change{{kv: true}, {q4: true}, {one: true}}
	together := []change{{kv: true, q4: true}, {q4: true, one: true}, {kv: true, q4: true, one: true}}
	found := false
	for _, c := range singly {
		found = try(c, false) || found
	}
	for _, c := range together {
		found = found || try(c, false)
	}
	if len(out) == 0 { // nothing holds the whole context
		for _, c := range together {
			if try(c, true) {
				break
			}
		}
	}
	return append(out, Remedy{Budget: need, Need: need})
}

// String writes a remedy as flags of the command line.
func (m Remedy) String() string {
	var flags []string
	if m.MaxModelLen > 0 {
		flags = append(flags, fmt.Sprintf("--max-model-len %d", m.MaxModelLen))
	}
	if m.MaxSeqs > 0 {
		flags = append(flags, fmt.Sprintf("--max-num-seqs %d", m.MaxSeqs))
	}
	if m.KV != "" {
		flags = append(flags, "--kv "+m.KV)
	}
	if m.Quant != "" {
		flags = append(flags, "--quant "+m.Quant)
	}
	if m.Budget > 0 {
		const mega = 1 << 20
		flags = append(flags, fmt.Sprintf("--gpu-memory %dM", (m.Budget+mega-1)/mega))
	}
	return strings.Join(flags, " ")
}
