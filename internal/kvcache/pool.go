// Package kvcache keeps the books of the paged key-value cache: which of a fixed number of blocks belong to which
// sequence. The memory itself lies on the device; this package knows nothing of it. It is used by one goroutine.
package kvcache

import "fmt"

// BlockSize is the number of tokens in a block: K and V of all layers for these tokens.
const BlockSize = 16

// BlockID names a block of the pool.
type BlockID int32

// Pool hands out blocks. All blocks exist from the start; a free one is handed out in the order in which it was freed, so
// that the content of a block lives as long as possible.
type Pool struct {
	refs []int32 // per block: how many tables hold it; 0 is free
	free []BlockID
	head int // free[head:] are the free blocks, oldest first
}

// NewPool makes a pool of n free blocks.
func NewPool(n int) *Pool {
	p := &Pool{refs: make([]int32, n), free: make([]BlockID, n, 2*n)}
	for i := range p.free {
		p.free[i] = BlockID(i)
	}
	return p
}

// NumBlocks is the size of the pool.
func (p *Pool) NumBlocks() int { return len(p.refs) }

// NumFree is the number of blocks that can be allocated.
func (p *Pool) NumFree() int { return len(p.free) - p.head }

// Allocate takes n free blocks, or none and false when there are fewer.
func (p *Pool) Allocate(n int) ([]BlockID, bool) {
	if n > p.NumFree() {
		return nil, false
	}
	got := make([]BlockID, n)
	copy(got, p.free[p.head:])
	p.head += n
	for _, b := range got {
		p.refs[b] = 1
	}
	return got, true
}

// Free gives up one reference to each block, the last block first, so that the tail of a sequence is reused before its
// beginning.
func (p *Pool) Free(blocks []BlockID) {
	for i := len(blocks) - 1; i >= 0; i-- {
		b := blocks[i]
		if p.refs[b] <= 0 {
			panic(fmt.Sprintf("BUG: kvcache: block %d freed while free", b))
		}
		if p.refs[b]--; p.refs[b] == 0 {
			p.push(b)
		}
	}
}

// push appends to the free list, sliding it back to the front of its array before that would grow.
func (p *Pool) push(b BlockID) {
	if len(p.free) == cap(p.free) {
		p.free = p.free[:copy(p.free, p.free[p.head:])]
		p.head = 0
	}
	p.free = append(p.free, b)
}

// Check reports the first inconsistency: every block is either free, and then listed once, or held.
func (p *Pool) Check() error {
	listed := make([]bool, len(p.refs))
	for _, b := range p.free[p.head:] {
		if listed[b] {
			return fmt.Errorf("kvcache: block %d is in the free list twice", b)
		}
		if p.refs[b] != 0 {
			return fmt.Errorf("kvcache: block %d is in the free list with %d references", b, p.refs[b])
		}
		listed[b] = true
	}
	for b, n := range p.refs {
		if n == 0 && !listed[b] {
			return fmt.Errorf("kvcache: block %d is lost: no reference and not in the free list", b)
		}
	}
	return nil
}

// NumBlocksFor is how many blocks n tokens need.
func NumBlocksFor(n int) int { return (n + BlockSize - 1) / BlockSize }
