package ref

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pagelight/pagelight/internal/quant"
)

// normals are n normally distributed numbers, the same for the same seed.
func normals(seed uint64, n int) []float32 {
	rng := rand.New(rand.NewPCG(seed, 1))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

// near fails unless got is within tolerance, relative to want or to 1, of want.
func near[T float32 | float64](t *testing.T, what string, got []float32, want []T, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i := range got {
		g, w := float64(got[i]), float64(want[i])
		if !(math.Abs(g-w) <= tolerance*math.Max(1, math.Abs(w))) {
			t.Errorf("%s: element %d is %v, want %v", what, i, g, w)
			return
		}
	}
}

// matrix quantizes random weights, or makes random codes and scales where Quantize does not know the format.
func matrix(t *testing.T, f quant.Format, rows, k int, seed uint64) Matrix {
	t.Helper()
	if !f.Quantizes() {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := Matrix{Format: f, Rows: rows, K: k, Data: make([]uint32, rows*f.RowWords(k)), Scales: make([]uint32, rows*f.ScaleWords(k))}
		for i := range w.Data {
			w.Data[i] = rng.Uint32()
		}
		for i := range w.Scales {
			w.Scales[i] = rng.Uint32() & 0x3BFF3BFF // halves and floats of magnitudes below 1
		}
		for j := range rows {
			if _, scales := w.row(j); f.Kind == quant.CCQ2 {
				quant.SetCCQ2Line(scales, 162, 10334)
			}
		}
		return w
	}
	data, scales, err := quant.Quantize(f, normals(seed, rows*k), k)
	if err != nil {
		t.Fatal(err)
	}
	return Matrix{Format: f, Rows: rows, K: k, Data: data, Scales: scales}
}

// dense is the whole matrix, decoded.
func (w *Matrix) dense() []float32 {
	x := make([]float32, w.Rows*w.K)
	for j := range w.Rows {
		w.Row(j, x[j*w.K:(j+1)*w.K])
	}
	return x
}

// Ids of other parts of the table, and those of no part, leave x alone.
func TestEmbed(t *testing.T) {
	for _, f := range []quant.Format{{Kind: quant.F32}, {Kind: quant.BF16}, {Kind: quant.Q4, Group: 8}} {
		const dim, rows = 16, 5
		table := matrix(t, f, rows, dim, 3)
		all := table.dense()
		part := func(lo, hi int) Matrix {
			n, s := f.RowWords(dim), f.ScaleWords(dim)
			return Matrix{Format: f, Rows: hi - lo, K: dim, Data: table.Data[lo*n : hi*n], Scales: table.Scales[lo*s : hi*s]}
		}
		tokens := []Token{{ID: 4}, {ID: 0}, {ID: 5}, {ID: NoID}, {ID: 2}, {ID: 1}}
		x := slices.Repeat([]float32{7}, len(tokens)*dim)
		for _, cut := range [][2]int{{0, 2}, {2, 5}} {
			a := EmbedArgs{Tokens: tokens, Table: part(cut[0], cut[1]), Row0: cut[0], X: x}
			Embed(&a, 0, 3)
			Embed(&a, 3, 5)
		}
		for m, id := range []int{4, 0, -1, -1, 2, -1} { // the last row was not asked for
			want := slices.Repeat([]float32{7}, dim)
			if id >= 0 {
				want = all[id*dim : (id+1)*dim]
			}
			if got := x[m*dim : (m+1)*dim]; !slices.Equal(got, want) {
				t.Errorf("%v: row %d: got %v, want %v", f, m, got, want)
			}
		}
	}
}

func TestRMSNorm(t *testing.T) {
	// By hand: the mean of the squares of 1, 2, 3, 4 is 7.5; with eps 1.5 it is 9, of which the root is 3.
	y := make([]float32, 8)
	RMSNorm(&RMSNormArgs{Dim: 4, Eps: 1.5, X: []float32{9, 9, 9, 9, 1, 2, 3, 4}, Weight: []float32{3, 6, -3, 0}, Y: y}, 1, 2)
	near(t, "by hand", y, []float64{0, 0, 0, 0, 1, 4, -3, 0}, 1e-6)
	// Whatever comes in has a root mean square of 1 afterwards.
	const dim = 384
	x, y := normals(1, 3*dim), make([]float32, 3*dim)
	for i := range x {
		x[i] *= 1e4
	}
	RMSNorm(&RMSNormArgs{Dim: dim, X: x, Weight: slices.Repeat([]float32{1}, dim), Y: y}, 0, 3)
	for m := range 3 {
		sum := 0.0
		for _, v := range y[m*dim : (m+1)*dim] {
			sum += float64(v) * float64(v)
		}
		if math.Abs(sum/dim-1) > 1e-6 {
			t.Errorf("row %d has a mean square of %v", m, sum/dim)
		}
	}
}

func TestMatmul(t *testing.T) {
	// By hand, with strides, an offset, a bias and what was there before.
	w := make([]uint32, 16)
	quant.Encode(quant.Format{}, w, []float32{1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 4})
	x := []float32{1, 10, 0, 0, 0, 0, 100, 1000, 99, 99, 5, 6, 0, 0, 0, 0, 7, 8, 99, 99}
	y := slices.Repeat([]float32{0.5}, 8)
	a := MatmulArgs{
		M: 2, X: x, XStride: 10, W: Matrix{Rows: 2, K: 8, Data: w}, Bias: []float32{9, 0.25, 0.75, 9}, Y: y, YStride: 4, YOffset: 1, Add: true,
	}
	Matmul(&a, 0, 1)
	near(t, "row 0 of w", y, []float64{0.5, 21.75, 0.5, 0.5, 0.5, 17.75, 0.5, 0.5}, 0)
	a.Bias, a.Add = nil, false
	Matmul(&a, 1, 2)
	near(t, "row 1 of w", y, []float64{0.5, 21.75, 4300, 0.5, 0.5, 17.75, 53, 0.5}, 0)
}

// The fast product is the plain one, for every format, whatever the shapes and ranges.
func TestMatmulFast(t *testing.T) {
	for _, f := range quant.Formats() {
		for _, c := range []struct{ m, n, k int }{{1, 1, 128}, {1, 9, 384}, {2, 4, 256}, {3, 7, 640}, {5, 66, 128}} {
			c.k = max(c.k/f.Multiple(), 1) * f.Multiple()
			w := matrix(t, f, c.n, c.k, 5)
			args := func() MatmulArgs {
				return MatmulArgs{
					M: c.m, X: normals(6, c.m*(c.k+3)), XStride: c.k + 3, W: w, Bias: normals(7, c.n+2),
					Y: normals(8, c.m*(c.n+4)), YStride: c.n + 4, YOffset: 2, Add: c.n%2 == 0,
				}
			}
			plain, fast := args(), args()
			Matmul(&plain, 0, c.n)
			x := make([]float64, c.m*c.k)
			fast.Widen(x, 0, c.m)
			var s Scratch
			cut := c.n / 2
			MatmulFast(&fast, x, &s, cut, c.n)
			MatmulFast(&fast, x, &s, 0, cut)
			near(t, fmt.Sprintf("%v %+v", f, c), fast.Y, plain.Y, 1e-6)
		}
	}
}

// Rotation against complex numbers: the pair (2i, 2i+1) times e^(i * position * theta^(-2i/D)).
func TestRope(t *testing.T) {
	const d, heads, stride, theta = 16, 3, 64, 500000
	table := make([]float32, 0, 40*d)
	angle := func(position, i int) float64 { return float64(position) * math.Pow(theta, -2*float64(i)/d) }
	for position := range 40 {
		for i := range d / 2 {
			table = append(table, float32(math.Cos(angle(position, i))), float32(math.Sin(angle(position, i))))
		}
	}
	tokens := []Token{{Position: 0}, {Position: 1}, {Position: 39}}
	x := normals(9, 3*stride)
	want := make([]float64, len(x))
	for m, token := range tokens {
		for j := range stride {
			want[m*stride+j] = float64(x[m*stride+j])
		}
		for pair := range heads * d / 2 {
			at := m*stride + 2*pair
			sin, cos := math.Sincos(angle(int(token.Position), pair%(d/2)))
			z := complex(want[at], want[at+1]) * complex(cos, sin)
			want[at], want[at+1] = real(z), imag(z)
		}
	}
	a := RopeArgs{Tokens: tokens, Heads: heads, HeadDim: d, RowStride: stride, Table: table, QKV: x}
	Rope(&a, 0, 1)
	Rope(&a, 1, 3)
	near(t, "rope", x, want, 1e-6)
}

func TestKVStore(t *testing.T) {
	for _, kv := range quant.KVTypes() {
		const d, g, blocks, stride = 16, 2, 3, 3 * 2 * 16
		words := blocks * int(kv.BlockBytes(g, d)) / 4
		cache := func() Cache { return Cache{Words: make([]uint32, words), KV: kv, KVHeads: g, HeadDim: d} }
		tokens := []Token{{Slot: 33}, {Slot: NoSlot}, {Slot: 0}, {Slot: 47}}
		a := KVStoreArgs{Tokens: tokens, RowStride: stride, KOffset: 2 * d, VOffset: 4 * d, QKV: normals(4, 4*stride), K: cache(), V: cache()}
		KVStore(&a, 0, 2)
		KVStore(&a, 2, 4)
		got := make([]float32, d)
		filled := map[int]int{33: 0, 0: 2, 47: 3}
		for slot := range blocks * BlockSize {
			for h := range g {
				for which, c := range []*Cache{&a.K, &a.V} {
					want := make([]float32, d)
					if m, ok := filled[slot]; ok {
						copy(want, a.QKV[m*stride+(2+2*which+h)*d:])
					}
					// The place of an element, spelled out: [block, head, offset, element].
					for i := range d {
						at := ((slot/16*g+h)*16+slot%16)*d + i
						switch kv {
						case quant.KVF32:
							got[i] = math.Float32frombits(c.Words[at])
						case quant.KVF16:
							want[i] = quant.F16ToF32(quant.F32ToF16(want[i]))
							got[i] = quant.F16ToF32(uint16(c.Words[at/2] >> (at % 2 * 16)))
						case quant.KVI8:
							head := (slot/16*g + h) * (16*d + 32) // bytes
							code := head + slot%16*d + i
							scale := head + 16*d + slot%16*2
							got[i] = float32(int8(c.Words[code/4]>>(code%4*8))) * quant.F16ToF32(uint16(c.Words[scale/4]>>(scale%4*8)))
						}
					}
					if s := quant.KVScale(want); kv == quant.KVI8 {
						for i, v := range want {
							want[i] = float32(math.RoundToEven(float64(v*(1/s)))) * s
						}
						if _, ok := filled[slot]; !ok {
							clear(want)
						}
					}
					loaded := make([]float32, d)
					c.Load(slot, h, loaded)
					if !slices.Equal(got, want) || !slices.Equal(loaded, want) {
						t.Fatalf("%v, slot %d, head %d, cache %d: got %v and %v, want %v", kv, slot, h, which, got, loaded, want)
					}
				}
			}
		}
	}
}

// attention is a batch over a cache whose blocks are scattered; slots that belong to no token hold NaN.
type attention struct {
	args   PagedAttnArgs
	keys   [][]float32 // of each sequence: [tokens, G, D]
	values [][]float32
}

func newAttention(heads, kvHeads, d int, kv quant.KVType, contexts []int, rows []Token) attention {
	const blocks = 40
	x := attention{}
	words := blocks * int(kv.BlockBytes(kvHeads, d)) / 4
	const nan = 0x7FFF7FFF // as f32 and as two halves
	cache := Cache{KV: kv, KVHeads: kvHeads, HeadDim: d}
	k, v := cache, cache
	k.Words, v.Words = slices.Repeat([]uint32{nan}, words), slices.Repeat([]uint32{nan}, words)
	order := rand.New(rand.NewPCG(3, 3)).Perm(blocks)
	maxBlocks := (slices.Max(contexts) + BlockSize - 1) / BlockSize
	tables := slices.Repeat([]uint32{0xFFFFFFFF}, len(contexts)*maxBlocks)
	keep := func(x []float32) []float32 { // what any cache keeps
		for i, v := range x {
			x[i] = quant.F16ToF32(quant.F32ToF16(v))
		}
		if kv == quant.KVI8 {
			head := make([]uint32, kv.HeadWords(d))
			for i := 0; i < len(x); i += d {
				quant.EncodeKVI8(head, 0, x[i:i+d])
				quant.DecodeKVI8(head, 0, x[i:i+d])
			}
		}
		return x
	}
	for s, n := range contexts {
		x.keys = append(x.keys, keep(normals(uint64(100+s), n*kvHeads*d)))
		x.values = append(x.values, keep(normals(uint64(200+s), n*kvHeads*d)))
		for t := range n {
			if t%BlockSize == 0 {
				tables[s*maxBlocks+t/BlockSize] = uint32(order[0])
				order = order[1:]
			}
			slot := int(tables[s*maxBlocks+t/BlockSize])*BlockSize + t%BlockSize
			k.store(slot, x.keys[s][t*kvHeads*d:])
			v.store(slot, x.values[s][t*kvHeads*d:])
		}
	}
	stride := heads*d + 8
	x.args = PagedAttnArgs{
		Tokens: rows, BlockTables: tables, MaxBlocks: maxBlocks, Heads: heads, RowStride: stride,
		Scale: float32(math.Pow(float64(d), -0.5)), QKV: normals(1, len(rows)*stride), K: k, V: v, Out: make([]float32, len(rows)*heads*d),
	}
	return x
}

// dense is attention by the book, without pages: softmax(q k^T * scale) v with the whole matrix of scores.
func (x *attention) dense() []float64 {
	a := &x.args
	d, g := a.K.HeadDim, a.K.KVHeads
	var out []float64
	for m, token := range a.Tokens {
		keys, values := x.keys[token.Seq], x.values[token.Seq]
		for h := range a.Heads {
			kv := h / (a.Heads / g)
			weights, sum := make([]float64, token.Position+1), 0.0
			for t := range weights {
				score := 0.0
				for i := range d {
					score += float64(a.QKV[m*a.RowStride+h*d+i]) * float64(keys[(t*g+kv)*d+i])
				}
				weights[t] = math.Exp(score * float64(a.Scale))
				sum += weights[t]
			}
			for i := range d {
				o := 0.0
				for t, w := range weights {
					o += w / sum * float64(values[(t*g+kv)*d+i])
				}
				out = append(out, o)
			}
		}
	}
	return out
}

func TestPagedAttn(t *testing.T) {
	contexts := []int{1, 16, 17, 150, 48}
	var rows []Token
	for s, n := range contexts { // the ends of all sequences, and a run in the middle of one
		rows = append(rows, Token{Position: uint32(n - 1), Seq: uint32(s)})
	}
	for p := range 21 {
		rows = append(rows, Token{Position: uint32(60 + p), Seq: 3})
	}
	for _, c := range []struct{ heads, kvHeads, d int }{{2, 2, 16}, {6, 2, 64}, {7, 1, 32}, {8, 1, 128}, {2, 1, 256}} {
		for _, kv := range quant.KVTypes() {
			x := newAttention(c.heads, c.kvHeads, c.d, kv, contexts, rows)
			a, m := &x.args, len(rows)
			want := x.dense()
			name := fmt.Sprintf("%+v %v", c, kv)

			PagedAttn(a, 0, 7)
			PagedAttn(a, 7, m)
			near(t, name+" plain", a.Out, want, 1e-6)

			clear(a.Out)
			var s Scratch
			units := PagedAttnUnits(a, m)
			PagedAttnFast(a, m, &s, units/2, units)
			PagedAttnFast(a, m, &s, 0, units/2)
			near(t, name+" fast", a.Out, want, 1e-6)

			for _, p := range []struct{ parts, part int }{{1, 64}, {3, 8}, {5, 32}, {2, 1}} {
				clear(a.Out)
				partial := make([]float32, m*c.heads*p.parts*(c.d+4))
				PagedAttnDecode(&PagedAttnDecodeArgs{PagedAttnArgs: *a, Parts: p.parts, Part: p.part, Partial: partial}, 0, m)
				r := PagedAttnReduceArgs{Heads: c.heads, Parts: p.parts, HeadDim: c.d, Partial: partial, Out: a.Out}
				PagedAttnReduce(&r, 0, 2)
				PagedAttnReduce(&r, 2, m)
				near(t, fmt.Sprintf("%s, %+v", name, p), a.Out, want, 2e-6)
			}
		}
	}
}

// Scores far apart neither overflow nor lose the winner.
func TestPagedAttnExtremes(t *testing.T) {
	x := newAttention(1, 1, 16, quant.KVF32, []int{40}, []Token{{Position: 39}})
	a := &x.args
	a.Scale = 1e4
	PagedAttn(a, 0, 1)
	plain := slices.Clone(a.Out)
	best, largest := 0, math.Inf(-1)
	for p := range 40 {
		score := 0.0
		for i := range 16 {
			score += float64(a.QKV[i]) * float64(x.keys[0][p*16+i])
		}
		if score > largest {
			best, largest = p, score
		}
	}
	near(t, "plain", plain, x.values[0][best*16:(best+1)*16], 1e-6)
	var s Scratch
	PagedAttnFast(a, 1, &s, 0, 1)
	near(t, "fast", a.Out, plain, 1e-6)
}

// One partition by hand: two scores, 0 and ln 3, so that the weights relative to the larger are 1/3 and 1.
func TestPagedAttnDecodePartial(t *testing.T) {
	cache := Cache{Words: make([]uint32, 16*16), KVHeads: 1, HeadDim: 16}
	k, v := cache, cache
	v.Words = make([]uint32, 16*16)
	one := func(x float32) []float32 { return append([]float32{x}, make([]float32, 15)...) }
	k.store(0, one(0))
	k.store(1, one(2))
	v.store(0, one(3))
	v.store(1, one(5))
	partial := slices.Repeat([]float32{9}, 2*20)
	PagedAttnDecode(&PagedAttnDecodeArgs{
		PagedAttnArgs: PagedAttnArgs{
			Tokens: []Token{{Position: 1}}, BlockTables: []uint32{0}, MaxBlocks: 1, Heads: 1, RowStride: 16, Scale: 0.5,
			QKV: one(float32(math.Log(3))), K: k, V: v,
		},
		Parts: 2, Part: 2, Partial: partial,
	}, 0, 1)
	want := make([]float64, 40)
	want[0], want[16], want[17] = 3.0/3+5, math.Log(3), 1.0/3+1
	want[36] = -math.MaxFloat32                         // the second partition sees nothing
	want[18], want[19], want[38], want[39] = 9, 9, 9, 9 // unused
	near(t, "partial", partial, want, 1e-6)
}

func TestSiLUMul(t *testing.T) {
	gateUp := []float32{0, 1, -1, 100, 9, 9, 9, 9, 0, 1, -1, -200, 5, 2, -3, 7}
	out := make([]float32, 8)
	SiLUMul(&SiLUMulArgs{Dim: 4, GateUp: gateUp, Out: out}, 1, 2)
	e := math.E
	near(t, "silu", out, []float64{0, 0, 0, 0, 0, 2 * e / (1 + e), 3 / (1 + e), 0}, 1e-6)
	SiLUMul(&SiLUMulArgs{Dim: 4, GateUp: gateUp, Out: out}, 0, 1)
	if out[3] != 900 {
		t.Errorf("silu(100) * 9: got %v", out[3])
	}
}

func TestGatherRows(t *testing.T) {
	out := []float32{9, 9, 9, 9, 9, 9}
	a := GatherRowsArgs{Dim: 2, XStride: 3, Rows: []uint32{1, 0, 1}, X: []float32{1, 2, 3, 4, 5, 6}, Out: out}
	GatherRows(&a, 0, 2)
	near(t, "gather", out, []float64{4, 5, 1, 2, 9, 9}, 0)
}

func TestArgmax(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	negNaN := math.Float32frombits(0xFFC00001)
	negZero := float32(math.Copysign(0, -1))
	for _, c := range []struct {
		logits []float32
		limit  int
		want   uint32
	}{
		{[]float32{1, 3, 2, 0, 0, 0, 0}, 7, 1},
		{[]float32{1, 5, 2, 5, 0, 5, 0}, 7, 1},             // ties: the lowest id
		{[]float32{-1, -2, -3, -1, -2, -3, -1}, 7, 0},      //
		{[]float32{1, 3, 2, 0, 9, nan, 9}, 4, 1},           // ids from the limit on do not count, nor does a NaN there
		{[]float32{1, 3, 2, nan, 9, 0, 0}, 7, NoID},        //
		{[]float32{1, 3, 2, 0, 9, 0, negNaN}, 7, NoID},     //
		{[]float32{inf, nan, inf, 0, 0, 0, 0}, 7, NoID},    //
		{[]float32{-inf, -inf, -inf, -inf, 0, 0, 0}, 4, 0}, //
		{[]float32{0, inf, inf, -inf, 0, 0, 0}, 7, 1},      //
		{[]float32{-1, negZero, 0, 0, 0, 0, 0}, 7, 1},      // minus zero is no less than zero
		{[]float32{-math.MaxFloat32, -inf, 0, 0, 0, 0, 0}, 2, 0},
		{[]float32{4, 0, 0, 0, 0, 0, 0}, 1, 0},
	} {
		logits := append(slices.Repeat([]float32{nan}, 7), c.logits...) // row 0 is not asked for
		for parts := 1; parts <= 9; parts++ {
			partial := make([]Best, 2*parts)
			ids := []uint32{77, 77}
			ArgmaxPartial(&ArgmaxPartialArgs{Vocab: 7, Limit: c.limit, Parts: parts, Logits: logits, Partial: partial}, 1, 2)
			ArgmaxReduce(&ArgmaxReduceArgs{Parts: parts, Partial: partial, IDs: ids}, 1, 2)
			if ids[0] != 77 || ids[1] != c.want {
				t.Errorf("%v below %d in %d parts: got %v, want %d", c.logits, c.limit, parts, ids, c.want)
			}
		}
		ids := []uint32{0}
		if Argmax(c.logits, 7, c.limit, ids); ids[0] != c.want {
			t.Errorf("%v below %d: got %v, want %d", c.logits, c.limit, ids, c.want)
		}
	}
	// The layout of slices: ids 0, 2, 4 and 1, 3.
	partial := make([]Best, 2)
	ArgmaxPartial(&ArgmaxPartialArgs{Vocab: 5, Limit: 5, Parts: 2, Logits: []float32{1, 7, 3, 7, 2}, Partial: partial}, 0, 1)
	if want := []Best{{math.Float32bits(3), 2}, {math.Float32bits(7), 1}}; !slices.Equal(partial, want) {
		t.Errorf("slices: got %v, want %v", partial, want)
	}
}

// BenchmarkMatmulFast reports multiply-adds on one core.
func BenchmarkMatmulFast(b *testing.B) {
	for _, f := range []quant.Format{
		{Kind: quant.F32},
		{Kind: quant.F16},
		{Kind: quant.BF16},
		{Kind: quant.Q8, Group: 32},
		{Kind: quant.Q4, Group: 32},
		{Kind: quant.Q4, Group: 128},
		{Kind: quant.Q2, Group: 64},
		{Kind: quant.Q4M, Group: 32},
		{Kind: quant.Q4K, Group: 32},
		{Kind: quant.Q6K, Group: 16},
		{Kind: quant.IQ4, Group: 32},
		{Kind: quant.F8, Group: 128},
		{Kind: quant.CCQ275, Group: 64},
		{Kind: quant.CCQ2, Group: 64},
	} {
		for _, m := range []int{1, 4, 64} {
			b.Run(fmt.Sprintf("%v/m=%d", f, m), func(b *testing.B) {
				const n, k = 512, 1024
				w := Matrix{Format: f, Rows: n, K: k, Data: make([]uint32, n*f.RowWords(k)), Scales: make([]uint32, n*f.ScaleWords(k))}
				a := MatmulArgs{M: m, X: make([]float32, m*k), XStride: k, W: w, Y: make([]float32, m*n), YStride: n}
				x := make([]float64, m*k)
				var s Scratch
				for b.Loop() {
					MatmulFast(&a, x, &s, 0, n)
				}
				b.ReportMetric(float64(m*n*k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gmac/s")
			})
		}
	}
}
