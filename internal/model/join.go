package model

import "github.com/pagelight/pagelight/internal/kernels"

// Steps of many rows have fewer joins than those of few (fuse.go): what is computed for each element alone goes into the kernel before
// it. A norm needs whole rows, which the tiles of a matrix product do not have: it goes with what adds up the parts of a product.

// joined builds ops from the calls that build makes, where the device gains from it.
func (b *builder) joined(build func()) {
	if !b.set.Joins() {
		build()
		return
	}
	b.collect, b.calls = true, nil
	build()
	b.collect = false
	for i := 0; i < len(b.calls) && b.err == nil; {
		i += b.join(i)
	}
	b.calls = nil
}

// ropeStore are the arguments for rotating queries and keys and storing as call s does.
func (b *builder) ropeStore(s call) kernels.RopeStoreArgs {
	return kernels.RopeStoreArgs{
		Rows: b.rows(), Heads: b.cfg.NumHeads, KVHeads: b.cfg.NumKVHeads, HeadDim: b.cfg.HeadDim, RowStride: b.qkvStride(),
		HalfSplit: b.cfg.RopeHalfSplit, KV: s.cache.KV, Tokens: b.Tokens, Table: b.ropeTable, QKV: s.reads,
		KCache: s.cache.K[s.layer], VCache: s.cache.V[s.layer], Step: b.step,
	}
}

// join makes ops of call i and perhaps of the one that follows, and says of how many.
func (b *builder) join(i int) int {
	c := b.calls[i]
	switch {
	case c.what == callRope && b.next(i+1, callStore, c.reads) && b.calls[i+1].cache.fuses():
		b.add(b.set.RopeStore(b.ropeStore(b.calls[i+1])))
		return 2
	case c.what == callLinear && !c.add && len(c.linear.Pieces) == 1 && c.linear.Pieces[0].Order == nil &&
		b.next(i+1, callRope, c.y) && b.next(i+2, callStore, c.y) && b.calls[i+2].cache.fuses() && c.linear.Pieces[0].W.Rows == b.qkvStride():
		b.tap(c.x, c.linear)
		rope := b.ropeStore(b.calls[i+2])
		b.add(b.set.Linear(kernels.LinearArgs{
			Rows: b.rows(), X: c.x, W: c.linear.Pieces[0].W, Bias: c.linear.Bias, Y: c.y, Rope: &rope, Step: b.step,
		}))
		return 3
	case c.what == callLinear && !c.add && len(c.linear.Pieces) == 1 && c.linear.Pieces[0].Order == nil &&
		b.next(i+1, callGate, c.y) && !b.readAgain(i+2, c.y):
		b.tap(c.x, c.linear)
		b.add(b.set.Linear(kernels.LinearArgs{
			Rows: b.rows(), X: c.x, W: c.linear.Pieces[0].W, Bias: c.linear.Bias, Gated: true, Between: c.y, Y: b.calls[i+1].writes, Step: b.step,
		}))
		return 2
	}
	if c.what == callLinear && c.add && len(c.linear.Pieces) == 1 && c.linear.Pieces[0].Order == nil && b.cfg.HiddenSize%4 == 0 &&
		b.next(i+1, callNorm, c.y) {
		n := b.calls[i+1]
		b.tap(c.x, c.linear)
		b.add(b.set.Linear(kernels.LinearArgs{
			Rows: b.rows(), X: c.x, W: c.linear.Pieces[0].W, Bias: c.linear.Bias, Y: c.y, Add: true, Norm: n.weight, Normed: n.writes,
			Eps: float32(b.cfg.RMSNormEps), Step: b.step,
		}))
		return 2
	}
	c.emit()
	return 1
}
