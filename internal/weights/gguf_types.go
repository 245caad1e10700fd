package weights

import (
	"fmt"

	"github.com/pagelight/pagelight/internal/quant"
)

// ggmlType is how a tensor of a GGUF file is stored.
type ggmlType uint32

// The types that can be read.
const (
	ggmlF32   ggmlType = 0
	ggmlF16   ggmlType = 1
	ggmlQ40   ggmlType = 2
	ggmlQ41   ggmlType = 3
	ggmlQ50   ggmlType = 6
	ggmlQ51   ggmlType = 7
	ggmlQ80   ggmlType = 8
	ggmlQ2K   ggmlType = 10
	ggmlQ3K   ggmlType = 11
	ggmlQ4K   ggmlType = 12
	ggmlQ5K   ggmlType = 13
	ggmlQ6K   ggmlType = 14
	ggmlIQ4NL ggmlType = 20
	ggmlBF16  ggmlType = 30
)

// ggmlLayout says how a readable type lies in a file: rows of blocks of so many values in so many bytes each.
type ggmlLayout struct {
	name          string
	values, bytes int          // of a block
	format        quant.Format // on the device
}

var ggmlLayouts = map[ggmlType]ggmlLayout{
	ggmlF32:   {"F32", 1, 4, quant.Format{Kind: quant.F32}},
	ggmlF16:   {"F16", 1, 2, quant.Format{Kind: quant.F16}},
	ggmlBF16:  {"BF16", 1, 2, quant.Format{Kind: quant.BF16}},
	ggmlQ40:   {"Q4_0", 32, 18, quant.Format{Kind: quant.Q4, Group: 32}},
	ggmlQ41:   {"Q4_1", 32, 20, quant.Format{Kind: quant.Q4M, Group: 32}},
	ggmlQ50:   {"Q5_0", 32, 22, quant.Format{Kind: quant.Q5M, Group: 32}},
	ggmlQ51:   {"Q5_1", 32, 24, quant.Format{Kind: quant.Q5M, Group: 32}},
	ggmlQ80:   {"Q8_0", 32, 34, quant.Format{Kind: quant.Q8, Group: 32}},
	ggmlQ2K:   {"Q2_K", 256, 84, quant.Format{Kind: quant.Q2K, Group: 16}},
	ggmlQ3K:   {"Q3_K", 256, 110, quant.Format{Kind: quant.Q3K, Group: 16}},
	ggmlQ4K:   {"Q4_K", 256, 144, quant.Format{Kind: quant.Q4K, Group: 32}},
	ggmlQ5K:   {"Q5_K", 256, 176, quant.Format{Kind: quant.Q5K, Group: 32}},
	ggmlQ6K:   {"Q6_K", 256, 210, quant.Format{Kind: quant.Q6K, Group: 16}},
	ggmlIQ4NL: {"IQ4_NL", 32, 18, quant.Format{Kind: quant.IQ4, Group: 32}},
}

// ggmlUnread are the names of types that cannot be read.
var ggmlUnread = map[ggmlType]string{
	4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S",
	23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8",
	34: "TQ1_0", 35: "TQ2_0", 36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0", 42: "Q2_0",
}

// layout says how the type lies in a file; the error names the type and what would work instead.
func (t ggmlType) layout() (ggmlLayout, error) {
	if l, ok := ggmlLayouts[t]; ok {
		return l, nil
	}
	name, ok := ggmlUnread[t]
	if !ok {
		name = fmt.Sprintf("type %d, which is unknown", uint32(t))
	}
	return ggmlLayout{}, fmt.Errorf("is stored as %s; F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K and IQ4_NL can be read: take a file of such a type (Q4_K_M, Q4_0, Q8_0)", name)
}
