package quant

import (
	"math"
	"testing"
)

// The codes of e4m3fn are the upper bits of halves whose exponent is biased by 15 instead of 7.
func TestF8ToF32(t *testing.T) {
	for code := range 256 {
		got := F8ToF32(byte(code))
		if code&0x7F == 0x7F {
			if got == got {
				t.Errorf("%#02x is %v, want a NaN", code, got)
			}
			continue
		}
		half := uint16(code&0x80)<<8 | uint16(code&0x7F)<<7
		if want := F16ToF32(half) * 256; math.Float32bits(got) != math.Float32bits(want) {
			t.Errorf("%#02x is %v, want %v", code, got, want)
		}
	}
	for code, want := range map[byte]float32{0x00: 0, 0x01: 0x1p-9, 0x07: 0x1.Cp-7, 0x08: 0x1p-6, 0x38: 1, 0x39: 1.125, 0x7E: 448, 0xFE: -448, 0xB8: -1} {
		if got := F8ToF32(code); got != want {
			t.Errorf("%#02x is %v, want %v", code, got, want)
		}
	}
}

// Every number keeps its code; what lies between two goes to the nearer, and the middle to the even one.
func TestF32ToF8(t *testing.T) {
	for code := range byte(0x7F) {
		v := F8ToF32(code)
		for _, sign := range []byte{0, 0x80} {
			at := func(f float32) byte { return F32ToF8(float32(math.Copysign(float64(f), 1-float64(sign)))) }
			if got := at(v); got != code|sign {
				t.Errorf("%v has code %#02x, want %#02x", v, got, code|sign)
			}
			if code == 0x7E {
				continue
			}
			middle := (v + F8ToF32(code+1)) / 2
			even := code + code&1
			for f, want := range map[float32]byte{
				middle: even, math.Nextafter32(middle, 0): code, math.Nextafter32(middle, 1000): code + 1,
			} {
				if got := at(f); got != want|sign {
					t.Errorf("%v has code %#02x, want %#02x", f, got, want|sign)
				}
			}
		}
	}
	inf := float32(math.Inf(1))
	for f, want := range map[float32]byte{448.1: 0x7E, 1e30: 0x7E, inf: 0x7E, -inf: 0xFE, -500: 0xFE, 1e-40: 0} {
		if got := F32ToF8(f); got != want {
			t.Errorf("%v has code %#02x, want %#02x", f, got, want)
		}
	}
	if got := F32ToF8(float32(math.NaN())); got&0x7F != 0x7F {
		t.Errorf("a NaN has code %#02x", got)
	}
}
