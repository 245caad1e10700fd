package quant

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
)

// The bytes of one row in every format, written out.
func TestLayout(t *testing.T) {
	codes := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	values := []float32{1, -2, 0.5, 0, 1, -2, 0.5, 0}
	for _, c := range []struct {
		format Format
		data   []uint32
		scales []uint32
		want   []float32
	}{
		{Format{F32, 0}, []uint32{0x3F800000, 0xC0000000, 0x3F000000, 0, 0x3F800000, 0xC0000000, 0x3F000000, 0}, nil, values},
		{Format{F16, 0}, []uint32{0xC0003C00, 0x00003800, 0xC0003C00, 0x00003800}, nil, values},
		{Format{BF16, 0}, []uint32{0xC0003F80, 0x00003F00, 0xC0003F80, 0x00003F00}, nil, values},
		// scale 0.5, zero point 2
		{Format{Q8, 8}, []uint32{0x04030201, 0x08070605}, []uint32{0x40003800}, []float32{-0.5, 0, 0.5, 1, 1.5, 2, 2.5, 3}},
		// scale 2, zero point 0.5
		{Format{Q4, 8}, []uint32{0x87654321}, []uint32{0x38004000}, []float32{1, 3, 5, 7, 9, 11, 13, 15}},
	} {
		if err := c.format.Check(8); err != nil {
			t.Fatal(err)
		}
		if n := c.format.RowWords(8); n != len(c.data) || 4*n != c.format.RowBytes(8) {
			t.Errorf("%v: a row has %d words, want %d", c.format, n, len(c.data))
		}
		got := make([]float32, 8)
		Decode(c.format, c.data, c.scales, 8, got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: got %v, want %v", c.format, got, c.want)
		}
		packed := make([]uint32, len(c.data))
		if c.format.Group == 0 {
			Encode(c.format, packed, values)
		} else {
			c.format.PackCodes(packed, codes)
			unpacked := make([]byte, 8)
			c.format.UnpackCodes(unpacked, packed)
			if !slices.Equal(unpacked, codes) {
				t.Errorf("%v: codes came back as %v", c.format, unpacked)
			}
		}
		if !slices.Equal(packed, c.data) {
			t.Errorf("%v: packed %x, want %x", c.format, packed, c.data)
		}
	}
}

// Each group of a row has its own scale.
func TestDecodeGroups(t *testing.T) {
	for _, f := range Formats() {
		if f.Kind > Q3 || f.Group == 0 {
			continue
		}
		const k = 256
		data, scales := make([]uint32, f.RowWords(k)), make([]uint32, f.ScaleWords(k))
		codes := make([]byte, k)
		for i := range codes {
			codes[i] = byte(i % (f.MaxCode() + 1))
		}
		f.PackCodes(data, codes)
		for g := range scales {
			scales[g] = PackScale(F32ToF16(float32(g+1)), F32ToF16(float32(g)))
		}
		got := make([]float32, k)
		Decode(f, data, scales, k, got)
		for i, v := range got {
			g := i / f.Group
			if want := float32((int(codes[i]) - g) * (g + 1)); v != want {
				t.Fatalf("%v: weight %d: got %v, want %v", f, i, v, want)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	for _, f := range Formats() {
		if err := f.Check(3 * f.Multiple()); err != nil {
			t.Errorf("%v: %v", f, err)
		}
		if err := f.Check(f.Multiple() + 4); err == nil {
			t.Errorf("%v: rows of %d were accepted", f, f.Multiple()+4)
		}
		if back, err := ParseFormat(f.String()); err != nil || back != f {
			t.Errorf("%v: parsed as %v, %v", f, back, err)
		}
	}
	for _, c := range []struct {
		f Format
		k int
	}{{Format{F32, 0}, 12}, {Format{F16, 0}, 0}, {Format{BF16, 8}, 8}, {Format{Q4, 0}, 8}, {Format{Q4, 24}, 48}, {Format{Q8, 32}, 48}, {Format{99, 0}, 8}, {Format{Q8, 8}, -8}} {
		if err := c.f.Check(c.k); err == nil {
			t.Errorf("%d/%d with rows of %d was accepted", c.f.Kind, c.f.Group, c.k)
		}
	}
}

// FuzzPackUnpack: codes survive, and whatever is quantized is either refused or decodes to finite weights that are no
// worse, but for the rounding of f32, than what plain rounding between the smallest and the largest would give.
func FuzzPackUnpack(f *testing.F) {
	f.Add(byte(0), []byte("\x00\x00\x80\x3f\x00\x00\x00\xc0"))
	f.Add(byte(12), []byte{0, 0, 0xC0, 0x7F})
	f.Add(byte(8), []byte{1, 0, 0, 0, 0, 0, 0, 0x80, 0xFF, 0xFF, 0x7F, 0x7F})
	f.Fuzz(func(t *testing.T, which byte, raw []byte) {
		formats := Formats()
		format := formats[int(which)%len(formats)]
		const k = 256
		w := make([]float32, k)
		for i := range w {
			if len(raw) >= 4 {
				at := i * 4 % (len(raw) - 3)
				w[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[at:]))
			}
		}
		if format.MaxCode() > 0 && len(raw) > 0 {
			codes, back := make([]byte, k), make([]byte, k)
			for i := range codes {
				codes[i] = raw[i%len(raw)] & byte(format.MaxCode())
			}
			words := make([]uint32, format.RowWords(k))
			format.PackCodes(words, codes)
			format.UnpackCodes(back, words)
			if !slices.Equal(codes, back) {
				t.Fatalf("%v: codes %v came back as %v", format, codes, back)
			}
		}
		data, scales, err := Quantize(format, w, k)
		if err != nil || format.Kind == F8 {
			return
		}
		got := make([]float32, k)
		Decode(format, data, scales, k, got)
		for g := 0; g < k; g += max(format.Group, 8) {
			n := max(format.Group, 8)
			if e, plain := squared(got[g:g+n], w[g:g+n]), plainError(format, w[g:g+n]); !(e <= plain*(1+1e-5)) {
				t.Fatalf("%v: group at %d: squared error %v, plain rounding has %v\n got %v\nfrom %v", format, g, e, plain, got[g:g+n], w[g:g+n])
			}
		}
	})
}

// squared is the squared distance.
func squared(a, b []float32) float64 {
	sum := 0.0
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		sum += d * d
	}
	return sum
}

// plainError is the squared error of the textbook method: a scale from the smallest to the largest weight and a whole
// zero point, or of rounding to the nearest for formats without codes. It is infinite where that method has no answer.
func plainError(f Format, w []float32) float64 {
	got := make([]float32, len(w))
	if f.Group == 0 {
		words := make([]uint32, f.RowWords(len(w)))
		Encode(f, words, w)
		Decode(f, words, nil, len(w), got)
		return squared(got, w)
	}
	lo, hi, top := slices.Min(w), slices.Max(w), float64(f.MaxCode())
	scale := float64(F16ToF32(F32ToF16(float32((float64(hi) - float64(lo)) / top))))
	zero := float64(F16ToF32(F32ToF16(float32(math.Round(-float64(lo) / scale)))))
	if scale == 0 || math.IsInf(scale, 0) || math.IsInf(zero, 0) || math.IsNaN(zero) {
		return math.Inf(1)
	}
	for i, v := range w {
		code := min(max(math.Round(float64(v)/scale+zero), 0), top)
		got[i] = float32((code - zero) * scale)
	}
	return squared(got, w)
}
