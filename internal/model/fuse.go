package model

import (
	"slices"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
)

// What few tokens wait for is the number of dispatches, each of which costs a GPU about as much as the work in it. For steps of at
// most kernels.FusedRows rows the forward pass is therefore built a second time: its calls are collected first, and those that
// one kernel can do together become one op (docs/adr/0031-fused-steps.md).

// call is one layer's work that has not become an op yet.
type call struct {
	what   callKind
	reads  gpu.Buffer // the activation that it reads; nil may be any
	writes gpu.Buffer // the activation that it replaces, if it does
	emit   func()     // makes its own ops

	weight   gpu.Buffer // of a norm, or of that before a linear layer which the layer may compute itself
	residual gpu.Buffer // what that norm reads
	linear   Linear
	x, y     gpu.Buffer // of a linear layer
	add      bool       // whether it adds to y
	cache    *Cache
	layer    int
	attend   kernels.AttentionArgs
}

type callKind uint8

const (
	callOther callKind = iota
	callNorm
	callLinear
	callRope
	callStore
	callGate
	callAttention
)

// do makes a call's ops, at once or when all calls are known.
func (b *builder) do(c call) {
	if b.collect {
		b.calls = append(b.calls, c)
		return
	}
	c.emit()
}

// fused builds ops from the calls that build makes.
func (b *builder) fused(build func()) {
	b.collect, b.calls = true, nil
	build()
	b.collect = false
	for i := 0; i < len(b.calls) && b.err == nil; {
		i += b.fuse(i)
	}
	b.calls = nil
}

// fuse makes ops of call i and perhaps of some that follow, and says of how many.
func (b *builder) fuse(i int) int {
	first := b.calls[i]
	if first.what == callAttention {
		return b.fuseAttention(i)
	}
	at := i // of the linear layer
	var norm gpu.Buffer
	if first.what == callNorm {
		if !b.next(i+1, callLinear, first.writes) || b.readAgain(i+2, first.writes) {
			first.emit()
			return 1
		}
		at, norm = i+1, first.weight
	}
	c := b.calls[at]
	if c.what != callLinear || !c.linear.inOrder() {
		first.emit()
		return 1
	}
	w := c.linear.Pieces[0].W
	readable, whole := b.set.CanFuse(&w)
	x := c.x
	if norm != nil {
		x = first.x
	}
	switch {
	case !readable:
		first.emit()
		return 1
	case whole && norm != nil && c.linear.Bias == nil && b.next(at+1, callRope, c.y) && b.next(at+2, callStore, c.y) && b.calls[at+2].cache.fuses():
		s := b.calls[at+2]
		b.add(b.set.QKVRopeStore(kernels.QKVRopeStoreArgs{
			Rows: b.rows(), Heads: b.cfg.NumHeads, KVHeads: b.cfg.NumKVHeads, HeadDim: b.cfg.HeadDim, RowStride: b.qkvStride(),
			HalfSplit: b.cfg.RopeHalfSplit, KV: s.cache.KV, Eps: float32(b.cfg.RMSNormEps), Tokens: b.Tokens, X: x, Norm: norm, W: w,
			Table: b.ropeTable, QKV: c.y, KCache: s.cache.K[s.layer], VCache: s.cache.V[s.layer], Step: b.step,
		}))
		return at + 3 - i
	case whole && !c.add && b.next(at+1, callGate, c.y) && !b.readAgain(at+2, c.y):
		b.normLinear(x, norm, c, w, b.calls[at+1].writes, true)
		return at + 2 - i
	}
	b.normLinear(x, norm, c, w, c.y, false)
	return at + 1 - i
}

// fuseAttention joins attention, call i, with the linear layer that adds what it found.
func (b *builder) fuseAttention(i int) int {
	first := b.calls[i]
	if b.context == shortContext && b.shortBlock(i) {
		return shortCalls
	}
	if b.next(i+1, callLinear, first.writes) && !b.readAgain(i+2, first.writes) {
		c := b.calls[i+1]
		if c.add && c.linear.Bias == nil && c.linear.inOrder() {
			w := c.linear.Pieces[0].W
			if readable, _ := b.set.CanFuse(&w); readable {
				b.add(b.set.AttnLinear(kernels.AttnLinearArgs{Attention: first.attend, W: w, Y: c.y, Long: b.context == longContext}))
				return 2
			}
		}
	}
	first.emit()
	return 1
}

// shortCalls is how many calls shortBlock joins: attention and its layer, norm, gate and up, the gate, down.
const shortCalls = 6

// shortBlock joins attention, call i, and all that follows it in a layer, if this is an MLP and nobody else reads what lies between.
func (b *builder) shortBlock(i int) bool {
	if i+shortCalls > len(b.calls) {
		return false
	}
	attend, o, norm, gateUp, gate, down := b.calls[i], b.calls[i+1], b.calls[i+2], b.calls[i+3], b.calls[i+4], b.calls[i+5]
	if !b.next(i+1, callLinear, attend.writes) || !b.next(i+2, callNorm, o.y) || !b.next(i+3, callLinear, norm.writes) ||
		!b.next(i+4, callGate, gateUp.y) || !b.next(i+5, callLinear, gate.writes) || !o.add || gateUp.add || !down.add || down.y != o.y {
		return false
	}
	end := i + shortCalls
	for _, between := range []gpu.Buffer{attend.writes, norm.writes, gateUp.y, gate.writes} {
		if b.readAgain(end, between) {
			return false
		}
	}
	if o.linear.Bias != nil || !o.linear.inOrder() || !gateUp.linear.inOrder() || !down.linear.inOrder() {
		return false
	}
	_, whole := b.set.CanFuse(&gateUp.linear.Pieces[0].W)
	readable, _ := b.set.CanFuse(&down.linear.Pieces[0].W)
	if !whole || !readable || !b.set.CanShortBlock(&attend.attend, &o.linear.Pieces[0].W) {
		return false
	}
	b.add(b.set.ShortBlock(kernels.ShortBlockArgs{
		Attention: attend.attend, O: o.linear.Pieces[0].W, Norm: norm.weight, Eps: float32(b.cfg.RMSNormEps), GateUp: gateUp.linear.Pieces[0].W,
		Down: down.linear.Pieces[0].W, GateUpBias: gateUp.linear.Bias, DownBias: down.linear.Bias, Act: gate.writes, Shares: b.shares, Y: o.y,
	}))
	b.short = true
	return true
}

// inOrder says whether a linear layer is one matrix whose columns stand in the order of its inputs.
func (l *Linear) inOrder() bool { return len(l.Pieces) == 1 && l.Pieces[0].Order == nil }

func (b *builder) normLinear(x, norm gpu.Buffer, c call, w kernels.Weight, y gpu.Buffer, gated bool) {
	b.add(b.set.NormLinear(kernels.NormLinearArgs{
		Rows: b.rows(), X: x, Norm: norm, Eps: float32(b.cfg.RMSNormEps), W: w, Bias: c.linear.Bias, Gated: gated, Y: y, Add: c.add,
		Step: b.step,
	}))
}

// next says whether call i is of a kind and reads an activation.
func (b *builder) next(i int, what callKind, reads gpu.Buffer) bool {
	return i < len(b.calls) && b.calls[i].what == what && b.calls[i].reads == reads
}

// readAgain says whether a call from i on may read x before another replaces it.
func (b *builder) readAgain(i int, x gpu.Buffer) bool {
	for _, c := range b.calls[i:] {
		switch {
		case c.reads == x || c.reads == nil:
			return true
		case c.writes == x:
			return false
		}
	}
	return false
}

// fuses says whether keys and values can be stored by the kernel that computes them.
func (c *Cache) fuses() bool { return kernels.StoresFused(c.KV) }

// contextKind is what lengths of contexts ops for few tokens are made for.
type contextKind uint8

const (
	anyContext contextKind = iota
	shortContext
	longContext
)

// Trunk is a list of the ops from token ids to hidden states.
type Trunk uint8

// The trunks. All but the first are for steps of few tokens, and serve contexts of every length but for ShortTrunk.
const (
	ManyTrunk  Trunk = iota // for steps of any size
	FewTrunk                // for steps of at most kernels.FusedRows rows
	ShortTrunk              // with contexts of at most kernels.Tuning.ShortContext positions
	LongTrunk               // with contexts of kernels.LongContext positions or more
	NumTrunks
)

// TrunkFor picks the fastest trunk for steps of at most rows rows whose longest context has positions positions.
func (f *Forward) TrunkFor(rows, positions int) Trunk {
	switch {
	case f.few == nil || rows > kernels.FusedRows:
		return ManyTrunk
	case f.fewShort != nil && positions <= f.shortContext:
		return ShortTrunk
	case f.fewLong != nil && positions >= kernels.LongContext:
		return LongTrunk
	}
	return FewTrunk
}

// Ops lists the ops of a trunk that TrunkFor gave.
func (f *Forward) Ops(t Trunk) []kernels.Op {
	return [NumTrunks][]kernels.Op{f.Trunk, f.few, f.fewShort, f.fewLong}[t]
}

// fewHeads builds the heads of steps that want one row of logits.
func (b *builder) fewHeads(w *Weights) {
	b.over(&b.fewHead, 1)
	if w.LMHead.Bias != nil || !w.LMHead.inOrder() || !b.set.CanHeadArgmax(&w.LMHead.Pieces[0].W) {
		b.fused(func() { b.head(w) })
		return
	}
	next := b.advance()
	for _, head := range []struct {
		ops  *[]kernels.Op
		ids  gpu.Buffer
		next *kernels.AdvanceArgs
	}{{&b.fewHead, nil, nil}, {&b.headPick, b.IDs, nil}, {&b.headPickNext, b.IDs, &next}} {
		b.over(head.ops, 1)
		b.add(b.set.HeadArgmax(kernels.HeadArgmaxArgs{
			Rows: 1, Index: b.LogitRows, X: b.x, Norm: w.FinalNorm, Eps: float32(b.cfg.RMSNormEps), W: w.LMHead.Pieces[0].W, Logits: b.Logits,
			Limit: b.limit(), IDs: head.ids, Advance: head.next, Step: b.step,
		}))
	}
}

// HeadPickOf is HeadOf and then Pick.
func (f *Forward) HeadPickOf(rows int) []kernels.Op {
	if f.headPick != nil && rows == 1 {
		return f.headPick
	}
	return slices.Concat(f.HeadOf(rows), f.Pick)
}

// HeadPickNextOf is HeadOf and then PickNext.
func (f *Forward) HeadPickNextOf(rows int) []kernels.Op {
	if f.headPickNext != nil && rows == 1 {
		return f.headPickNext
	}
	return slices.Concat(f.HeadOf(rows), f.PickNext)
}

// HeadOf lists the ops from hidden states to logits for steps of at most rows rows that want them. The kernels of few rows read the
// weights again for each row, which a layer as large as this one should not.
func (f *Forward) HeadOf(rows int) []kernels.Op {
	if f.fewHead != nil && rows == 1 {
		return f.fewHead
	}
	return f.Head
}
