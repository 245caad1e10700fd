// Package kvcache keeps the books of the paged key-value cache: which of a fixed number of blocks belong to which
// sequence, and which tokens a block holds, so that a sequence that begins like an earlier one finds that beginning
// computed. The memory itself lies on the device; this package knows nothing of it, nor of models or requests. It is
// used by one goroutine.
//
// A block is held (by one or more tables) or free. A free block keeps what it holds until it is handed out again, and
// the blocks that are free the longest go first. The idea and the words are vLLM's (v1 block pool).
//
// There is no null block. vLLM points table entries at one that must not be read or written, for windows of attention
// and padded rows. Here kernels read a table only up to the position that they compute, and rows past the step's true
// number write nothing, so such a block would take the memory of a real one and stop no fault.
package kvcache

import "fmt"

// BlockSize is the number of tokens in a block on the device: K and V of all layers for these tokens. Kernels know no
// other.
const BlockSize = 16

// BlockID names a block of the pool.
type BlockID int32

// Config describes a pool.
type Config struct {
	NumBlocks int // at least 1
	BlockSize int // tokens in a block; 0 means BlockSize, and only tests of the bookkeeping use another
	// Namespace names whatever else decides what K and V of the same tokens are: model, adapter, type of storage. It is
	// part of every hash.
	Namespace     string
	NoPrefixCache bool // nothing is ever found again
}

// Pool hands out blocks and finds the ones that hold what is wanted. All blocks exist from the start.
type Pool struct {
	size    int // tokens in a block
	noCache bool

	blocks  []block // one more than there are: the last one links both ends of the free list
	tokens  []int32 // [blocks, size]: what findable blocks hold
	numFree int

	byHash    map[digest]BlockID // the oldest findable block with that hash
	numCached int                // findable blocks
	chains    uint64             // the last chain number given
	hasher    hasher

	queries, hits, evictions int64
}

// block is the state of one block. refs of 0 means that it is in the free list.
type block struct {
	refs       int32   // tables that hold it
	prev, next BlockID // neighbours in the free list
	content
}

// Stats counts since the pool was made, except for the first three, which say what is now.
type Stats struct {
	NumBlocks int
	NumFree   int // blocks that no sequence holds, findable or not
	NumCached int // blocks that can be found, held or not

	Queries   int64 // tokens that sequences asked for when they were first admitted
	Hits      int64 // those among them that were found
	Evictions int64 // findable blocks that were handed out for something else
}

// NewPool makes a pool of free blocks that hold nothing; they are handed out in the order of their numbers.
func NewPool(c Config) *Pool {
	if c.BlockSize == 0 {
		c.BlockSize = BlockSize
	}
	if c.NumBlocks < 1 || c.BlockSize < 1 {
		panic(fmt.Sprintf("BUG: kvcache: config %+v", c))
	}
	n := c.NumBlocks
	p := &Pool{
		size: c.BlockSize, noCache: c.NoPrefixCache,
		blocks: make([]block, n+1), tokens: make([]int32, n*c.BlockSize),
		byHash: make(map[digest]BlockID, n), hasher: newHasher(c.Namespace, c.BlockSize),
	}
	end := p.end()
	p.blocks[end].prev, p.blocks[end].next = end, end
	for b := range BlockID(n) {
		p.insert(b, end)
	}
	return p
}

// NumBlocks is the size of the pool.
func (p *Pool) NumBlocks() int { return len(p.blocks) - 1 }

// NumFree is the number of blocks that can be allocated.
func (p *Pool) NumFree() int { return p.numFree }

// BlockSize is the number of tokens in a block.
func (p *Pool) BlockSize() int { return p.size }

// NumBlocksFor is how many blocks of this pool n tokens need.
func (p *Pool) NumBlocksFor(n int) int { return (n + p.size - 1) / p.size }

// Refs is the number of tables that hold a block.
func (p *Pool) Refs(b BlockID) int { return int(p.blocks[b].refs) }

// Stats tells the state and the counters.
func (p *Pool) Stats() Stats {
	return Stats{
		NumBlocks: p.NumBlocks(), NumFree: p.numFree, NumCached: p.numCached,
		Queries: p.queries, Hits: p.hits, Evictions: p.evictions,
	}
}

// Allocate appends n blocks to table, the ones that have been free the longest, and forgets what they held. When there
// are fewer it changes nothing and returns false.
func (p *Pool) Allocate(table Table, n int) (Table, bool) {
	if n > p.numFree {
		return table, false
	}
	for range n {
		b := p.blocks[p.end()].next
		p.unlink(b)
		if p.blocks[b].chain != 0 {
			p.forget(b)
			p.evictions++
		}
		p.blocks[b].refs = 1
		table = append(table, b)
	}
	return table, true
}

// Hold takes one more reference to each block, as found by Lookup.
func (p *Pool) Hold(blocks []BlockID) {
	for _, b := range blocks {
		if p.blocks[b].refs == 0 {
			p.unlink(b)
		}
		p.blocks[b].refs++
	}
}

// Free gives up one reference to each block of a table, the last block first, so that of a sequence the tail is reused
// before its beginning, which others are more likely to share. A block that holds nothing findable goes before all that
// do: it has nothing to lose.
func (p *Pool) Free(table Table) {
	for i := len(table) - 1; i >= 0; i-- {
		b := table[i]
		if p.blocks[b].refs <= 0 {
			panic(fmt.Sprintf("BUG: kvcache: block %d freed while free", b))
		}
		if p.blocks[b].refs--; p.blocks[b].refs > 0 {
			continue
		}
		if p.blocks[b].chain != 0 {
			p.insert(b, p.end())
		} else {
			p.insert(b, p.blocks[p.end()].next)
		}
	}
}

// NumFreeOf is how many of these blocks are free, and so would no longer be after Hold.
func (p *Pool) NumFreeOf(blocks []BlockID) int {
	n := 0
	for _, b := range blocks {
		if p.blocks[b].refs == 0 {
			n++
		}
	}
	return n
}

// end is the element of blocks that is no block but both ends of the free list.
func (p *Pool) end() BlockID { return BlockID(len(p.blocks) - 1) }

// insert puts a block into the free list before another.
func (p *Pool) insert(b, before BlockID) {
	prev := p.blocks[before].prev
	p.blocks[b].prev, p.blocks[b].next = prev, before
	p.blocks[prev].next, p.blocks[before].prev = b, b
	p.numFree++
}

// unlink takes a block out of the free list.
func (p *Pool) unlink(b BlockID) {
	prev, next := p.blocks[b].prev, p.blocks[b].next
	p.blocks[prev].next, p.blocks[next].prev = next, prev
	p.numFree--
}
