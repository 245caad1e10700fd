package kvcache

import (
	"fmt"
	"slices"
)

// content says what a findable block holds: its tokens (in Pool.tokens) after everything that came before them.
//
// The hash only finds candidates. What is compared are the tokens, and what came before them by its chain number: every
// different beginning of a sequence, up to the end of some block, gets a number of its own, and blocks with equal content
// share it. So a collision of hashes can make nobody read another prompt's K and V.
//
// The numbers cost no hits. A table holds a block only together with those before it, and frees it before them, so a
// block's predecessor is always found as long as the block itself is (Check holds that).
type content struct {
	chain  uint64 // number of the beginning that ends with this block; 0 when the block cannot be found
	parent uint64 // number of the beginning that ends before it; 0 for a first block
	salt   string // of a first block: what the chain was salted with
	hash   digest

	// The blocks of one hash are a ring in the order of registration; Pool.byHash has the oldest.
	older, newer BlockID
}

// Lookup appends to dst the blocks that hold the beginning of tokens, as many whole blocks as are found one after
// another, and takes no reference to them. At most most tokens are found, and never the last: somebody has to compute a
// row of logits from it.
func (p *Pool) Lookup(dst Table, c *Chain, tokens []int32, most int) Table {
	if p.noCache {
		return dst
	}
	parent := uint64(0)
	for i := range min(most, len(tokens)-1) / p.size {
		b, ok := p.find(p.hasher.extend(c, tokens, i), parent, c.Salt, p.part(tokens, i))
		if !ok {
			break
		}
		dst = append(dst, b)
		parent = p.blocks[b].chain
	}
	return dst
}

// Caches reports whether full blocks can be found again at all.
func (p *Pool) Caches() bool { return !p.noCache }

// Count books that a sequence asked for so many tokens and found so many.
func (p *Pool) Count(asked, found int) {
	if !p.noCache {
		p.queries += int64(asked)
		p.hits += int64(found)
	}
}

// Register makes the blocks first to last-1 of a table findable. They are full: K and V of all their tokens have been
// computed. Those before first are registered already. Content that another block has too is kept twice, since tables
// do not change what they hold; Lookup gives the older one.
func (p *Pool) Register(c *Chain, tokens []int32, table Table, first, last int) {
	if p.noCache {
		return
	}
	for i := first; i < last; i++ {
		b := table[i]
		parent := uint64(0)
		if i > 0 {
			parent = p.blocks[table[i-1]].chain
		}
		if at := &p.blocks[b]; at.chain != 0 || at.refs == 0 || i > 0 && parent == 0 {
			panic(fmt.Sprintf("BUG: kvcache: block %d registered: findable %v, %d references, predecessor findable %v",
				b, at.chain != 0, at.refs, parent != 0))
		}
		hash, part := p.hasher.extend(c, tokens, i), p.part(tokens, i)
		at := content{parent: parent, hash: hash, older: b, newer: b}
		if i == 0 {
			at.salt = c.Salt
		}
		if same, ok := p.find(hash, parent, c.Salt, part); ok {
			at.chain = p.blocks[same].chain
		} else {
			p.chains++
			at.chain = p.chains
		}
		if oldest, ok := p.byHash[hash]; ok {
			newest := p.blocks[oldest].older // around the ring
			at.older, at.newer = newest, oldest
			p.blocks[newest].newer, p.blocks[oldest].older = b, b
		} else {
			p.byHash[hash] = b
		}
		p.blocks[b].content = at
		copy(p.held(b), part)
		p.numCached++
	}
}

// Reset forgets what all blocks hold, and reports whether it did: it does nothing while any block is held. It is for
// when the same tokens would no longer give the same K and V.
func (p *Pool) Reset() bool {
	if p.numFree < p.NumBlocks() {
		return false
	}
	for b := range p.blocks {
		p.blocks[b].content = content{}
	}
	clear(p.byHash)
	p.numCached = 0
	return true
}

// find gives the oldest block with that content.
func (p *Pool) find(hash digest, parent uint64, salt string, tokens []int32) (BlockID, bool) {
	oldest, ok := p.byHash[hash]
	if !ok {
		return 0, false
	}
	for b := oldest; ; {
		at := &p.blocks[b]
		if at.parent == parent && (parent != 0 || at.salt == salt) && slices.Equal(p.held(b), tokens) {
			return b, true
		}
		if b = at.newer; b == oldest {
			return 0, false
		}
	}
}

// forget makes a block unfindable.
func (p *Pool) forget(b BlockID) {
	at := &p.blocks[b].content
	if at.newer == b {
		delete(p.byHash, at.hash)
	} else {
		if p.byHash[at.hash] == b {
			p.byHash[at.hash] = at.newer
		}
		p.blocks[at.older].newer, p.blocks[at.newer].older = at.newer, at.older
	}
	*at = content{}
	p.numCached--
}

// part is the tokens of a sequence's block i.
func (p *Pool) part(tokens []int32, i int) []int32 { return tokens[i*p.size : (i+1)*p.size] }

// held is the tokens that a findable block holds.
func (p *Pool) held(b BlockID) []int32 { return p.tokens[int(b)*p.size : (int(b)+1)*p.size] }
