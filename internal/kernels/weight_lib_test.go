package kernels

import (
	"slices"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/quant"
)

// Every format has kernels, whose text says which file decodes it, and with which constants.
func TestEveryFormatHasALib(t *testing.T) {
	for _, f := range quant.Formats() {
		desc, err := Describe("matvec", &f, nil)
		if err != nil {
			t.Errorf("%v: %v", f, err)
			continue
		}
		if n := strings.Count(desc.Source, "\nfn weight_quad("); n != 1 || desc.Label != "matvec "+f.String() {
			t.Errorf("%s: %d lib files", desc.Label, n)
		}
		if got := desc.Consts["WEIGHT"]; got != uint32(f.Kind) {
			t.Errorf("%v: WEIGHT is %d, want %d", f, got, f.Kind)
		}
	}
	for name, want := range map[string][]string{
		"q4g64":      {"// lib_weight_q4:", "const GROUP: u32 = 64u;"},
		"q3g16":      {"// lib_weight_runs:", "const GROUP: u32 = 16u;", "const BITS: u32 = 3u;", "const SCALES: u32 = 0u;"},
		"q5mg32":     {"// lib_weight_runs:", "const BITS: u32 = 5u;", "const SCALES: u32 = 1u;"},
		"q6kg16":     {"// lib_weight_runs:", "const GROUP: u32 = 16u;", "const BITS: u32 = 6u;", "const SCALES: u32 = 2u;"},
		"ccq2.75g64": {"// lib_weight_ccq275:"},
	} {
		f, err := quant.ParseFormat(name)
		if err != nil {
			t.Fatal(err)
		}
		desc, err := Describe("matvec", &f, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(desc.Source, w) {
				t.Errorf("%s: the text has no %q", name, w)
			}
		}
	}
}

func TestWidths(t *testing.T) {
	for name, want := range map[string][]uint32{
		"f16": {0, 1}, "q4g8": {0}, "q4g32": {1}, "q3g16": {0}, "q3g32": {1}, "q4mg32": {1}, "q6kg16": {1}, "q2kg16": {1}, "f8g16": {0},
		"ccq2g64": {1},
	} {
		f, err := quant.ParseFormat(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := Widths(f); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
