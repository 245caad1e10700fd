package kvcache

import "fmt"

// FreeList is the free blocks in the order in which they will be handed out, if nobody finds them before.
func (p *Pool) FreeList() []BlockID {
	list := make([]BlockID, 0, p.numFree)
	for b := p.blocks[p.end()].next; b != p.end(); b = p.blocks[b].next {
		list = append(list, b)
	}
	return list
}

// Check reports the first inconsistency. It looks at every block: it is for tests and for when nothing runs.
func (p *Pool) Check() error {
	if err := p.checkFree(); err != nil {
		return err
	}
	return p.checkContent()
}

// checkFree follows the free list both ways: every block is in it once, or held.
func (p *Pool) checkFree() error {
	listed := make([]bool, p.NumBlocks())
	n := 0
	for last, b := p.end(), p.blocks[p.end()].next; b != p.end(); last, b = b, p.blocks[b].next {
		switch at := &p.blocks[b]; {
		case listed[b]:
			return fmt.Errorf("kvcache: block %d is in the free list twice", b)
		case at.refs != 0:
			return fmt.Errorf("kvcache: block %d is in the free list with %d references", b, at.refs)
		case at.prev != last:
			return fmt.Errorf("kvcache: block %d follows %d in the free list and says %d", b, last, at.prev)
		}
		listed[b] = true
		n++
	}
	if n != p.numFree {
		return fmt.Errorf("kvcache: %d blocks are in the free list, counted %d", n, p.numFree)
	}
	for b, ok := range listed {
		if refs := p.blocks[b].refs; refs < 0 || refs == 0 && !ok {
			return fmt.Errorf("kvcache: block %d is lost: %d references and not in the free list", b, refs)
		}
	}
	return nil
}

// checkContent follows the rings: every findable block is in the ring of its hash and has a findable predecessor.
func (p *Pool) checkContent() error {
	found, alive := 0, map[uint64]bool{0: true}
	for hash, oldest := range p.byHash {
		for b := oldest; ; {
			at := &p.blocks[b]
			switch {
			case at.chain == 0 || at.hash != hash:
				return fmt.Errorf("kvcache: block %d is in the ring of a hash that is not its own", b)
			case p.blocks[at.newer].older != b || p.blocks[at.older].newer != b:
				return fmt.Errorf("kvcache: the ring of block %d is broken", b)
			}
			alive[at.chain] = true
			if found++; found > p.numCached {
				return fmt.Errorf("kvcache: more than the %d counted blocks can be found", p.numCached)
			}
			if b = at.newer; b == oldest {
				break
			}
		}
	}
	cached := 0
	for b := range p.NumBlocks() {
		at := &p.blocks[b]
		if at.chain != 0 {
			cached++
		}
		if !alive[at.parent] {
			return fmt.Errorf("kvcache: block %d can be found, the one before it cannot", b)
		}
	}
	if found != p.numCached || cached != p.numCached {
		return fmt.Errorf("kvcache: %d blocks can be found, %d say so, counted %d", found, cached, p.numCached)
	}
	return nil
}
