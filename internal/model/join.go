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

// whole says whether call i is a linear layer that one Linear computes.
func (b *builder) whole(i int) bool {
	return i < len(b.calls) && b.calls[i].what == callLinear && len(b.calls[i].linear.Pieces) == 1 && b.calls[i].linear.Pieces[0].Order == nil
}

// ropes says whether rotation and storing follow linear layer i and go with it.
func (b *builder) ropes(i int) bool {
	c := b.calls[i]
	return !c.add && b.next(i+1, callRope, c.y) && b.next(i+2, callStore, c.y) && b.calls[i+2].cache.fuses() &&
		c.linear.Pieces[0].W.Rows == b.qkvStride()
}

// gates says whether a gate follows linear layer i and goes with it.
func (b *builder) gates(i int) bool {
	c := b.calls[i]
	return !c.add && b.next(i+1, callGate, c.y) && !b.readAgain(i+2, c.y)
}

// normsLater says whether the norm that call i is can be left to the layer after it, in steps of few rows.
func (b *builder) normsLater(i int) bool {
	n := b.calls[i]
	return b.set.NormsLater() && b.rows() > kernels.NormRows && b.whole(i+1) && b.calls[i+1].reads == n.writes && !b.readAgain(i+2, n.writes) &&
		(b.ropes(i+1) || b.gates(i+1))
}

// join makes ops of call i and perhaps of those that follow, and says of how many.
func (b *builder) join(i int) int {
	c := b.calls[i]
	if c.what == callRope && b.next(i+1, callStore, c.reads) && b.calls[i+1].cache.fuses() {
		b.add(b.set.RopeStore(b.ropeStore(b.calls[i+1])))
		return 2
	}
	if !b.whole(i) {
		c.emit()
		return 1
	}
	args := kernels.LinearArgs{
		Rows: b.rows(), X: c.x, W: c.linear.Pieces[0].W, Bias: c.linear.Bias, Y: c.y, Eps: float32(b.cfg.RMSNormEps), Step: b.step,
		InNorm: c.weight, Residual: c.residual,
	}
	calls := 2
	switch {
	case b.ropes(i):
		rope := b.ropeStore(b.calls[i+2])
		args.Rope, calls = &rope, 3
	case b.gates(i):
		args.Gated, args.Between, args.Y = true, c.y, b.calls[i+1].writes
	case c.add && b.cfg.HiddenSize%4 == 0 && b.next(i+1, callNorm, c.y):
		n := b.calls[i+1]
		args.Add, args.Norm, args.Normed = true, n.weight, n.writes
		if args.NormLater = b.normsLater(i + 1); args.NormLater {
			b.calls[i+2].weight, b.calls[i+2].residual = n.weight, c.y
		}
	default:
		c.emit()
		return 1
	}
	b.tap(c.x, c.linear)
	b.add(b.set.Linear(args))
	return calls
}
