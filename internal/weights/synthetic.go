package weights

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/pagelight/pagelight/internal/quant"
)

// The synthetic model has the exact shape of ERNIE-4.5-0.3B and weights that are a function of their name and place, so
// that a benchmark or a test at full size needs no file and still knows the right answer. All arithmetic is on unsigned
// 64-bit integers:
//
//	mix(z)  = z ^= z >> 30; z *= 0xBF58476D1CE4E5B9; z ^= z >> 27; z *= 0x94D049BB133111EB; z ^= z >> 31
//	seed    = FNV-1a, 64 bit, of the tensor's name
//	h(i)    = mix(seed + (i + 1) * 0x9E3779B97F4A7C15)            i = row-major index of the element
//	matrices, in groups g of 128 along K:
//	  r     = h(2^40 + g) >> 60                                   0..15
//	  scale = (16 + r) / 32 * 2^e                                 e = -6 for q_proj and k_proj, -5 for the embedding, else -7
//	  code  = 1 + h(i) % 15                                       1..15
//	  in each 32 elements j:  t = h(2^41 + j);  element t & 31 gets code 0,
//	                          element ((t & 31) + 1 + (t >> 32) % 31) & 31 gets code 15
//	  weight = (code - 8) * scale
//	vectors: 1 + ((h(i) >> 59) - 16) / 64                         0.75 .. 1.234
//
// Every weight is exact in bf16, and every 32 elements have both ends of the range, so that 4 bits with groups of 32, 64
// or 128 hold the model without loss: a source that quantizes it gets the codes directly.

// SyntheticPrefix is what the names of synthetic models begin with where a model is named by one string.
const SyntheticPrefix = "synthetic:"

// syntheticModels are the models that OpenSynthetic knows.
var syntheticModels = map[string]Config{
	"ernie-4.5-0.3b": {
		Architecture: "ernie4_5", Name: SyntheticPrefix + "ernie-4.5-0.3b",
		HiddenSize: 1024, IntermediateSize: 3072, NumLayers: 18, NumHeads: 16, NumKVHeads: 2, HeadDim: 128, SyntheticTokenizer: true,
		VocabSize: 103424, MaxPositions: 131072, RMSNormEps: 1e-5, RopeTheta: 500000, TieEmbeddings: true,
		EOS: []int32{2}, BOS: 1,
	},
}

const (
	syntheticGroup = 128 // elements that share a scale
	syntheticRange = 32  // elements that reach code 0 and code 15
)

type synthetic struct {
	naturalOrder

	cfg    Config
	shapes map[string]Shape
	buf    []byte
	scales []byte
}

// OpenSynthetic opens a synthetic model, with or without its prefix. It has no tokenizer.
func OpenSynthetic(name string) (Source, error) {
	cfg, ok := syntheticModels[strings.TrimPrefix(name, SyntheticPrefix)]
	if !ok {
		var known []string
		for n := range syntheticModels {
			known = append(known, SyntheticPrefix+n)
		}
		slices.Sort(known)
		return nil, fmt.Errorf("weights: no synthetic model %q; there is %s", name, strings.Join(known, ", "))
	}
	s := &synthetic{cfg: cfg, shapes: map[string]Shape{}}
	for _, t := range Tensors(&cfg) {
		s.shapes[t.Name] = t
	}
	return s, nil
}

func (s *synthetic) Config() *Config { return &s.cfg }

func (s *synthetic) Has(name string) bool {
	_, ok := s.shapes[name]
	return ok
}

func (s *synthetic) shape(name string) (Shape, error) {
	t, ok := s.shapes[name]
	if !ok {
		return t, fmt.Errorf("weights: %s: tensor %q: %w", s.cfg.Name, name, ErrNoTensor)
	}
	return t, nil
}

func (s *synthetic) Info(name string) (Info, error) {
	t, err := s.shape(name)
	if err != nil {
		return Info{}, err
	}
	return Info{Rows: t.Rows, K: t.K, Format: quant.Format{Kind: quant.BF16}}, nil
}

func (s *synthetic) Rows(ctx context.Context, name string, lo, hi int) (Rows, error) {
	t, err := s.shape(name)
	if err != nil {
		return Rows{}, err
	}
	if err := checkRange(name, lo, hi, t.Rows); err != nil {
		return Rows{}, err
	}
	s.buf = grow(s.buf, 2*t.K*(hi-lo))
	if t.Vector {
		for i, v := range t.norm() {
			binary.LittleEndian.PutUint16(s.buf[2*i:], quant.F32ToBF16(v))
		}
		return Rows{Data: Segment{Bytes: s.buf}}, nil
	}
	seed, exp := synSeed(name), synExponent(name)
	err = eachRow(ctx, hi-lo, func(row int) {
		dst := s.buf[2*t.K*row:][:2*t.K]
		var codes [syntheticGroup]uint8
		first := uint64(lo+row) * uint64(t.K)
		for k := 0; k < t.K; k += syntheticGroup {
			scale := synCodes(seed, first+uint64(k), exp, &codes)
			// (code - 8) * scale is exact in bf16: 4 bits times 5 bits.
			var values [16]uint16
			for c := range values {
				values[c] = quant.F32ToBF16(float32(c-8) * scale)
			}
			out := dst[2*k:][:2*syntheticGroup]
			for i, c := range codes {
				binary.LittleEndian.PutUint16(out[2*i:], values[c&15])
			}
		}
	})
	if err != nil {
		return Rows{}, fmt.Errorf("weights: %s: tensor %q: %w", s.cfg.Name, name, err)
	}
	return Rows{Data: Segment{Bytes: s.buf}}, nil
}

// packed gives rows in 4 bits, which hold them exactly; false for a tensor or a format where that is not so. It is what a
// quantizer finds from the bf16 values: the smallest weight of a group is code 0, zero point 8.
func (s *synthetic) packed(ctx context.Context, name string, f quant.Format, lo, hi int) (Rows, bool, error) {
	t, ok := s.shapes[name]
	if !ok || t.Vector || f.Kind != quant.Q4 || f.Group < syntheticRange || f.Group > syntheticGroup {
		return Rows{}, false, nil
	}
	if err := checkRange(name, lo, hi, t.Rows); err != nil {
		return Rows{}, true, err
	}
	s.buf = grow(s.buf, f.RowBytes(t.K)*(hi-lo))
	s.scales = grow(s.scales, f.ScaleBytes(t.K)*(hi-lo))
	seed, exp := synSeed(name), synExponent(name)
	zero := quant.F32ToF16(8)
	err := eachRow(ctx, hi-lo, func(row int) {
		dst := s.buf[f.RowBytes(t.K)*row:][:f.RowBytes(t.K)]
		scales := s.scales[f.ScaleBytes(t.K)*row:][:f.ScaleBytes(t.K)]
		var codes [syntheticGroup]uint8
		first := uint64(lo+row) * uint64(t.K)
		for k := 0; k < t.K; k += syntheticGroup {
			scale := synCodes(seed, first+uint64(k), exp, &codes)
			word := quant.PackScale(quant.F32ToF16(scale), zero)
			for g := k; g < k+syntheticGroup; g += f.Group {
				binary.LittleEndian.PutUint32(scales[g/f.Group*4:], word)
			}
			out := dst[k/2:][:syntheticGroup/2]
			for i := range out {
				out[i] = codes[2*i] | codes[2*i+1]<<4
			}
		}
	})
	if err != nil {
		return Rows{}, true, fmt.Errorf("weights: %s: tensor %q: %w", s.cfg.Name, name, err)
	}
	return Rows{Data: Segment{Bytes: s.buf}, Scales: Segment{Bytes: s.scales}}, true, nil
}

func (s *synthetic) Vector(_ context.Context, name string) ([]float32, error) {
	t, err := s.shape(name)
	if err != nil {
		return nil, err
	}
	if !t.Vector {
		return nil, fmt.Errorf("weights: %s: tensor %q has shape %s, want a vector", s.cfg.Name, name, t)
	}
	return t.norm(), nil
}

// syntheticTemplate makes chatting possible: the conversation is the text of its messages.
const syntheticTemplate = `{% for message in messages %}{{ message["content"] }}{% endfor %}`

func (s *synthetic) File(_ context.Context, name string) ([]byte, error) {
	if name == "chat_template.jinja" {
		return []byte(syntheticTemplate), nil
	}
	return nil, nil
}

func (s *synthetic) Bytes() int64 { return deviceBytes(s) }
func (s *synthetic) Close() error { return nil }

// norm is the values of a vector.
func (s Shape) norm() []float32 {
	seed := synSeed(s.Name)
	out := make([]float32, s.K)
	for i := range out {
		out[i] = 1 + (float32(synHash(seed, uint64(i))>>59)-16)/64
	}
	return out
}

func synSeed(name string) uint64 {
	h := uint64(0xCBF29CE484222325)
	for _, b := range []byte(name) {
		h = (h ^ uint64(b)) * 0x100000001B3
	}
	return h
}

func synExponent(name string) int {
	switch {
	case strings.Contains(name, "q_proj"), strings.Contains(name, "k_proj"):
		return -6
	case strings.Contains(name, "embed"):
		return -5
	}
	return -7
}

func synHash(seed, i uint64) uint64 {
	z := seed + (i+1)*0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// synCodes computes the codes of the 128 elements from first on, which is a multiple of 128, and their scale.
func synCodes(seed, first uint64, exp int, codes *[syntheticGroup]uint8) float32 {
	for i := range codes {
		codes[i] = uint8(1 + synHash(seed, first+uint64(i))%15)
	}
	for j := range uint64(syntheticGroup / syntheticRange) {
		t := synHash(seed, 1<<41+first/syntheticRange+j)
		a := t & 31
		b := (a + 1 + (t>>32)%31) & 31
		codes[j*syntheticRange+a] = 0
		codes[j*syntheticRange+b] = 15
	}
	r := synHash(seed, 1<<40+first/syntheticGroup) >> 60
	return float32(math.Ldexp(float64(16+r)/32, exp))
}

// eachRow calls do for the rows 0 to n-1 from several goroutines, in blocks; it stops early when ctx is done.
func eachRow(ctx context.Context, n int, do func(row int)) error {
	workers := min(runtime.GOMAXPROCS(0), n)
	const block = 16
	var wg sync.WaitGroup
	var mu sync.Mutex
	next := 0
	for range workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				mu.Lock()
				lo := next
				next += block
				mu.Unlock()
				if lo >= n {
					return
				}
				for row := lo; row < min(lo+block, n); row++ {
					do(row)
				}
			}
		})
	}
	wg.Wait()
	return ctx.Err()
}
