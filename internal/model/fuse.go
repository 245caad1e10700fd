package model

import (
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

	weight gpu.Buffer // of a norm
	linear Linear
	x, y   gpu.Buffer // of a linear layer
	add    bool       // whether it adds to y
	cache  *Cache
	layer  int
	attend kernels.AttentionArgs
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
	if c.what != callLinear || len(c.linear.Pieces) != 1 || c.linear.Pieces[0].Order != nil {
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
	if b.next(i+1, callLinear, first.writes) && !b.readAgain(i+2, first.writes) {
		c := b.calls[i+1]
		if c.add && c.linear.Bias == nil && len(c.linear.Pieces) == 1 && c.linear.Pieces[0].Order == nil {
			w := c.linear.Pieces[0].W
			if readable, _ := b.set.CanFuse(&w); readable {
				b.add(b.set.AttnLinear(kernels.AttnLinearArgs{Attention: first.attend, W: w, Y: c.y, Long: b.long}))
				return 2
			}
		}
	}
	first.emit()
	return 1
}

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

// TrunkOf lists the ops from token ids to hidden states for steps of at most rows rows.
func (f *Forward) TrunkOf(rows int) []kernels.Op {
	if f.few != nil && rows <= kernels.FusedRows {
		return f.few
	}
	return f.Trunk
}

// LongTrunkOf is TrunkOf for steps whose contexts are long. Both serve contexts of every length; which is faster, LongTrunk says.
func (f *Forward) LongTrunkOf(rows int) []kernels.Op {
	if f.fewLong != nil && rows <= kernels.FusedRows {
		return f.fewLong
	}
	return f.TrunkOf(rows)
}

// LongTrunk says whether LongTrunkOf is faster for a step of at most rows rows whose longest context has positions positions.
func (f *Forward) LongTrunk(rows, positions int) bool {
	return f.fewLong != nil && rows <= kernels.FusedRows && positions >= kernels.LongContext
}

// HeadOf lists the ops from hidden states to logits for steps of at most rows rows that want them. The kernels of few rows read the
// weights again for each row, which a layer as large as this one should not.
func (f *Forward) HeadOf(rows int) []kernels.Op {
	if f.fewHead != nil && rows == 1 {
		return f.fewHead
	}
	return f.Head
}
