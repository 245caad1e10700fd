package quant

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// Every half survives the way through f32, and has the value that its bits spell.
func TestF16ToF32(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		exponent, mantissa := int(h>>10&31), float64(h&0x3FF)
		want := math.Ldexp(mantissa, -24)
		switch {
		case exponent == 31 && mantissa == 0:
			want = math.Inf(1)
		case exponent == 31:
			want = math.NaN()
		case exponent > 0:
			want = math.Ldexp(1024+mantissa, exponent-25)
		}
		if h>>15 == 1 {
			want = -want
		}
		got := F16ToF32(h)
		if math.IsNaN(want) {
			if got == got {
				t.Errorf("%04x: got %v, want NaN", h, got)
			}
			if back := F32ToF16(got); back != h|0x200 { // quiet
				t.Errorf("%04x: back to %04x", h, back)
			}
			continue
		}
		if float64(got) != want || math.Signbit(float64(got)) != (h>>15 == 1) {
			t.Errorf("%04x: got %v, want %v", h, got, want)
		}
		if back := F32ToF16(got); back != h {
			t.Errorf("%04x: back to %04x", h, back)
		}
	}
}

// What Python rounds to, ties and borders included.
func TestF32ToF16(t *testing.T) {
	text, err := os.ReadFile("testdata/halves.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var bits uint32
		var want uint16
		if _, err := fmt.Sscanf(line, "%x %x", &bits, &want); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if got := F32ToF16(math.Float32frombits(bits)); got != want {
			t.Errorf("%08x: got %04x, want %04x", bits, got, want)
		}
		if got := F32ToF16(-math.Float32frombits(bits)); got != want|0x8000 {
			t.Errorf("-%08x: got %04x, want %04x", bits, got, want|0x8000)
		}
	}
	if got := F32ToF16(float32(math.Inf(-1))); got != 0xFC00 {
		t.Errorf("-Inf: got %04x", got)
	}
}

func TestBF16(t *testing.T) {
	for _, c := range []struct {
		bits uint32
		want uint16
	}{
		{0x3F800000, 0x3F80}, // 1
		{0x3F808000, 0x3F80}, // a tie goes to the even one
		{0x3F818000, 0x3F82},
		{0x3F808001, 0x3F81},
		{0x3F807FFF, 0x3F80},
		{0x7F7FFFFF, 0x7F80}, // too large
		{0xFF7F7FFF, 0xFF7F},
		{0x7F800000, 0x7F80},
		{0x7F800001, 0x7FC0}, // a NaN whose payload would vanish
		{0x00000001, 0x0000},
		{0x80008001, 0x8001},
	} {
		if got := F32ToBF16(math.Float32frombits(c.bits)); got != c.want {
			t.Errorf("%08x: got %04x, want %04x", c.bits, got, c.want)
		}
	}
	for i := range 1 << 16 {
		if h := uint16(i); h&0x7F80 != 0x7F80 && F32ToBF16(BF16ToF32(h)) != h {
			t.Errorf("%04x does not survive", h)
		}
	}
}
