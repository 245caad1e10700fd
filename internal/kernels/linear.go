package kernels

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/wgsl"
)

// LinearArgs are the arguments of Linear.
type LinearArgs struct {
	Rows    int        // most rows, M
	X       gpu.Buffer // [M, XStride] f32; the first W.K elements of a row are used
	XStride int        // a multiple of 4; 0 means W.K
	// UniformX says that X was made with gpu.UsageUniform and has InputRows(Rows, W.K) rows of W.K elements, so that software
	// adapters can read it faster.
	UniformX bool
	W        Weight     // [N, K]
	Bias     gpu.Buffer // nil, or [YStride] f32, indexed like a row of Y
	Y        gpu.Buffer // [M, YStride] f32; columns YOffset to YOffset+N-1 are written
	YStride  int        // 0 means W.Rows
	YOffset  int
	Add      bool // add to Y instead of replacing it
	// Gated makes Y [M, W.Rows/2]: silu of the first half of the outputs times the other. YOffset is 0 then, XStride W.K, YStride
	// W.Rows/2, and there is no Add. Between is [M, W.Rows] f32 for kernels that leave the gate to another.
	Gated   bool
	Between gpu.Buffer
	// Norm, if not nil, is the weight [W.Rows] of the RMS norm of Y after this layer, which Add adds to Y; Normed is [M, W.Rows] f32,
	// written, and Eps is added to the mean square. YOffset is 0 and YStride W.Rows then, a multiple of 4. Not for BarrierFree.
	Norm, Normed gpu.Buffer
	Eps          float32
	// Rope, if not nil, rotates and stores the outputs, queries, keys and values, after this layer: its QKV is Y, its Rows, Step and
	// RowStride are those of the layer, and its heads are all of W.Rows. There is no Add, Gated or YOffset then. Not for BarrierFree.
	Rope *RopeStoreArgs
	Step gpu.Binding // holds the rows that a step really has
}

// linearParams are the Params of matvec, matmul, matmul_serial and matmul_lanes.
type linearParams struct {
	K, N, XStride, YStride, YOffset, Flags, Pad0, Pad1 uint32
}

// tileParams are the Params of matmul_tile.
type tileParams struct {
	K, N, XStride, YStride, YOffset, Flags, Octets, Parts uint32
}

// The bits of linearParams.Flags.
const (
	flagAdd  = 1
	flagBias = 2
)

// variant is one kernel that can compute a linear layer.
type variant struct {
	kernel, name string
	maxRows      int // the largest bucket that it serves
	consts       func(format quant.Format, k int) wgsl.Consts
	grid         func(n int) func(rows int) [3]uint32
	gates        bool // has a constant GATED
	parts        int  // that K is cut into; sum_parts follows if it is more than one
	octets       int  // of matmul_tile: parts are multiples of so many inputs over 8
}

// upTo is the variant for buckets of up to rows rows.
func (v variant) upTo(rows int) variant {
	v.maxRows = rows
	return v
}

// Linear multiplies rows by a weight matrix:
//
//	y[m, YOffset+j] (+)= dot(x[m], w[j]) + bias[YOffset+j]
//
// It has kernels for one row, for a few, for some and for many, or the serial ones where these suit the device; with Gated it also
// computes the gate of a SwiGLU layer, in the same kernel where it can.
//
// A row's sums have the same order for every number of rows and every place in them with Tuning.Deterministic, and with
// Tuning.BarrierFree always.
func (s *Set) Linear(a LinearArgs) (Op, error) {
	if a.XStride == 0 {
		a.XStride = a.W.K
	}
	if a.YStride == 0 {
		a.YStride = a.outputs()
	}
	if err := a.check(s.tuning.BarrierFree); err != nil {
		return nil, err
	}
	t := trial{in: []gpu.Buffer{a.X}, out: []gpu.Buffer{a.Y}, again: func() (Op, error) { return s.Linear(a) }}
	if a.Rope != nil {
		t.cache, t.kv = []gpu.Buffer{a.Rope.KCache, a.Rope.VCache}, a.Rope.KV
	}
	defer s.tried(t)()
	choose, err := s.linearChoice(&a)
	if err != nil {
		return nil, err
	}
	return &op{name: "linear", rows: a.Rows, traffic: a.traffic, choose: choose}, nil
}

// linearChoice gives the dispatches of a bucket.
func (s *Set) linearChoice(a *LinearArgs) (func(rows int) []*dispatch, error) {
	if s.tuning.UniformX && a.UniformX && a.XStride == a.W.K && uniformRows(a.W.K) > 0 {
		return s.thenGate(a, s.matmulUniform)
	}
	s.reserve(s.tuning.linearScratch([]LinearShape{{a.Rows, a.W.Rows, a.W.K}}))
	variants := s.linearVariants(a)
	recorded := map[string][]*dispatch{}
	for _, v := range variants {
		if recorded[v.name] != nil {
			continue
		}
		list, err := s.linearDispatches(a, v)
		if err != nil {
			return nil, err
		}
		recorded[v.name] = list
	}
	return func(rows int) []*dispatch {
		for _, v := range variants {
			if rows <= v.maxRows {
				return recorded[v.name]
			}
		}
		panic("BUG: no kernel for the rows of a linear layer")
	}, nil
}

// linearDispatches makes the dispatches of one variant: one for each part of the weight, and perhaps one that ends the layer.
func (s *Set) linearDispatches(a *LinearArgs, v variant) ([]*dispatch, error) {
	if a.Gated && (!v.gates || v.parts == 1 && len(a.W.Parts) > 1) {
		of, err := s.thenGate(a, func(a *LinearArgs) (func(int) []*dispatch, error) {
			list, err := s.linearDispatches(a, v)
			return always(list...), err
		})
		if err != nil {
			return nil, err
		}
		return of(a.Rows), nil
	}
	to := *a
	if v.parts > 1 { // what lies between is [parts, M, W.Rows]
		to.Y, to.Bias, to.Add, to.Gated, to.YOffset, to.YStride = nil, nil, false, false, 0, a.W.Rows
	}
	var list []*dispatch
	var finish []func(scratch gpu.Buffer) error
	for _, part := range a.W.Parts {
		consts := wgsl.Consts{}
		maps.Copy(consts, v.consts(part.Format, a.W.K))
		if v.gates {
			consts["GATED"] = bit(to.Gated)
		}
		p, err := s.pipeline(v.kernel, &part.Format, consts)
		if err != nil {
			return nil, err
		}
		var params any = to.params(part)
		if v.octets > 0 {
			params = to.tileParams(part, v.octets, v.parts)
		}
		d := &dispatch{pipeline: p, grid: v.grid(part.Rows)}
		if to.Gated {
			d.grid = v.grid(part.Rows + part.Rows%2)
		}
		list = append(list, d)
		bind := func(y gpu.Buffer) (err error) {
			d.group, err = s.bind(p, params, a.Step, a.X, part.Data, part.Scales, to.Bias, y)
			return err
		}
		if v.parts > 1 {
			finish = append(finish, bind)
		} else if err := bind(a.Y); err != nil {
			return nil, err
		}
	}
	end := s.linearEnd(a)
	if v.parts == 1 && (a.Norm != nil || a.Rope != nil) {
		last, bind, err := end(a, 0)
		if err == nil {
			err = bind(nil)
		}
		return append(list, last), err
	}
	if v.parts > 1 {
		last, bind, err := end(a, v.parts)
		if err != nil {
			return nil, err
		}
		list, finish = append(list, last), append(finish, bind)
		s.later(0, func(scratch gpu.Buffer) error {
			for _, f := range finish {
				if err := f(scratch); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return list, nil
}

// linearEnd is the kernel that ends a layer: that of the layer after it, if that goes with it, or the sum of the parts.
func (s *Set) linearEnd(a *LinearArgs) func(a *LinearArgs, parts int) (*dispatch, func(scratch gpu.Buffer) error, error) {
	switch {
	case a.Norm != nil:
		return s.sumNorm
	case a.Rope != nil:
		return func(a *LinearArgs, parts int) (*dispatch, func(scratch gpu.Buffer) error, error) {
			bias := a.Bias
			if parts == 0 {
				bias = nil // the kernel before has added it
			}
			return s.ropeStore(a.Rope, bias, parts)
		}
	}
	return s.sumParts
}

// thenGate is choice with a kernel for the gate after it, if there is one.
func (s *Set) thenGate(a *LinearArgs, choice func(*LinearArgs) (func(rows int) []*dispatch, error)) (func(rows int) []*dispatch, error) {
	if !a.Gated {
		return choice(a)
	}
	plain := *a
	plain.Gated, plain.Y, plain.YStride = false, a.Between, a.W.Rows
	of, err := choice(&plain)
	if err != nil {
		return nil, err
	}
	gate, err := s.siluMul(&SiLUMulArgs{Rows: a.Rows, Dim: a.outputs(), GateUp: a.Between, Out: a.Y, Step: a.Step})
	return func(rows int) []*dispatch {
		list := of(rows)
		return append(list[:len(list):len(list)], gate)
	}, err
}

// linearBuckets are the numbers of rows up to which one variant serves; more rows have one more.
var linearBuckets = []int{1, 4, 8, 16, 32, 64, 128, 256, 512}

// linearVariants lists the kernels that buckets of up to a.Rows rows need, for the smallest buckets first.
func (s *Set) linearVariants(a *LinearArgs) (list []variant) {
	rows := a.Rows
	few := min(s.tuning.MatmulRows-1, rows)
	switch {
	case s.tuning.BarrierFree:
		if few >= 1 {
			list = append(list, s.matmulSerial(1).upTo(few))
		}
		if rows > few {
			list = append(list, s.matmulSerial(serialTokens).upTo(rows))
		}
		return list
	case s.tuning.Deterministic: // one pipeline for all rows
		var options []variant
		for _, l := range laneShapes(16, a.W.Rows, a.W.K) {
			options = append(options, s.matmulLanes(l))
		}
		options = append(options, s.matvec(4))
		for _, t := range tileShapes {
			options = append(options, s.matmulTile(t, 1))
		}
		return append(list, s.chooseLinear(a, rows, "all", options).upTo(rows))
	}
	for from, i := 1, 0; from <= rows; i++ {
		top, name := rows, "more"
		if i < len(linearBuckets) {
			top, name = min(linearBuckets[i], rows), strconv.Itoa(linearBuckets[i])
		}
		list = append(list, s.chooseLinear(a, top, name, s.linearOptions(a, top)).upTo(top))
		from = top + 1
	}
	return list
}

// linearOptions lists what can compute rows rows, the default first.
func (s *Set) linearOptions(a *LinearArgs, rows int) (list []variant) {
	n, k := a.W.Rows, a.W.K
	if rows == 1 {
		return []variant{s.matvec(1), s.matvec(4)}
	}
	var lanes, tiles []variant
	for _, l := range laneShapes(rows, n, k) {
		lanes = append(lanes, s.matmulLanes(l))
	}
	for _, o := range tileOptions(rows, n, k) {
		tiles = append(tiles, s.matmulTile(o.shape, o.parts))
	}
	switch {
	case rows < s.tuning.MatmulRows && rows <= 4 && n < 2048:
		return slices.Concat([]variant{s.matvec(4)}, lanes, tiles)
	case rows < s.tuning.MatmulRows && rows <= 4: // two to five times as fast on an H200, most for an LM head
		return slices.Concat(lanes, []variant{s.matvec(4)}, tiles)
	case rows < s.tuning.MatmulRows && (rows <= 16 || n <= 8192): // for an LM head tiles pay sooner
		return slices.Concat(lanes, []variant{s.matvec(4)}, tiles, []variant{s.matmul()})
	case rows <= 64:
		return slices.Concat(tiles, lanes, []variant{s.matmul()})
	}
	return append(tiles, s.matmul())
}

// chooseLinear picks among variants for a bucket.
func (s *Set) chooseLinear(a *LinearArgs, rows int, bucket string, options []variant) variant {
	key := "linear "
	for i, p := range a.W.Parts {
		if i > 0 && p.Format != a.W.Parts[i-1].Format {
			key += "+"
		}
		if i == 0 || p.Format != a.W.Parts[i-1].Format {
			key += p.Format.String()
		}
	}
	key += fmt.Sprintf(" %dx%d", a.W.K, a.W.Rows)
	if a.Gated {
		key += " gated"
	}
	names := make([]string, len(options))
	for i, v := range options {
		names[i] = v.name
	}
	name := s.choose(key+" "+bucket, rows, names...)
	return options[slices.Index(names, name)]
}

// outputs is how many columns of Y are written.
func (a *LinearArgs) outputs() int {
	if a.Gated {
		return a.W.Rows / 2
	}
	return a.W.Rows
}

func (a *LinearArgs) check(barrierFree bool) error {
	c := checker{op: "linear"}
	c.positive("Rows", a.Rows)
	c.weight(&a.W)
	c.want(a.W.K <= 8*maxLoop, "K is %d, more than %d", a.W.K, 8*maxLoop)
	c.want(a.XStride >= a.W.K && a.XStride%4 == 0, "XStride is %d, not a multiple of 4 that is at least K %d", a.XStride, a.W.K)
	c.want(a.YOffset >= 0 && a.YOffset+a.outputs() <= a.YStride,
		"columns %d to %d do not fit into YStride %d", a.YOffset, a.YOffset+a.outputs(), a.YStride)
	if a.Norm != nil {
		c.want(a.Add && !a.Gated && a.YOffset == 0 && a.YStride == a.W.Rows && a.W.Rows%4 == 0 && !barrierFree,
			"Norm goes with Add and whole rows of a multiple of 4, and with barriers")
		c.buffer("Norm", a.Norm, a.W.Rows)
		c.buffer("Normed", a.Normed, a.Rows*a.W.Rows)
	}
	if a.Rope != nil {
		a.Rope.check(&c)
		c.want(!a.Add && !a.Gated && a.Norm == nil && a.YOffset == 0 && !barrierFree, "Rope goes with no Add, Gated, Norm or YOffset, and with barriers")
		c.want(a.Rope.width() == a.W.Rows && a.Rope.QKV == a.Y && a.Rope.RowStride == a.YStride && a.Rope.Rows == a.Rows,
			"Rope has other rows than Y, [%d, %d]", a.Rows, a.W.Rows)
	}
	if a.Gated {
		c.want(a.W.Rows%2 == 0, "Gated weights have %d rows, an odd number", a.W.Rows)
		c.want(!a.Add && a.YOffset == 0 && a.YStride == a.W.Rows/2 && a.XStride == a.W.K, "Gated goes with no Add, YOffset, YStride or XStride")
		c.buffer("Between", a.Between, a.Rows*a.W.Rows)
	}
	c.buffer("X", a.X, a.Rows*a.XStride)
	if a.UniformX {
		c.buffer("X (as a uniform)", a.X, InputRows(a.Rows, a.W.K)*a.W.K)
	}
	c.buffer("Y", a.Y, a.Rows*a.YStride)
	if a.Bias != nil {
		c.buffer("Bias", a.Bias, a.YOffset+a.W.Rows)
	}
	return c.err
}

func (a *LinearArgs) flags() (flags uint32) {
	if a.Add {
		flags |= flagAdd
	}
	if a.Bias != nil {
		flags |= flagBias
	}
	return flags
}

func (a *LinearArgs) params(part Part) linearParams {
	return linearParams{
		K: uint32(a.W.K), N: uint32(part.Rows), XStride: uint32(a.XStride), YStride: uint32(a.YStride),
		YOffset: uint32(a.YOffset + part.Row0), Flags: a.flags(),
	}
}

// tileParams cuts K into parts of a multiple of so many octets.
func (a *LinearArgs) tileParams(part Part, multiple, parts int) tileParams {
	p := a.params(part)
	octets := ceil(ceil(a.W.K/8, parts), multiple) * multiple
	return tileParams{p.K, p.N, p.XStride, p.YStride, p.YOffset, p.Flags, uint32(octets), uint32(parts)}
}

func (a *LinearArgs) traffic(rows int) int64 {
	n := 4 * int64(rows) * int64(a.W.K+a.outputs())
	if a.Add {
		n += 4 * int64(rows) * int64(a.W.Rows)
	}
	if a.Rope != nil {
		n += a.Rope.traffic(rows)
	}
	for _, p := range a.W.Parts {
		n += int64(p.Rows) * int64(p.Format.RowBytes(a.W.K)+p.Format.ScaleBytes(a.W.K))
	}
	return n
}
