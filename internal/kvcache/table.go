package kvcache

// Table lists a sequence's blocks in order: token t lies in block Table[t/size] at offset t%size. Tables only grow at
// their end; a block in a table is never replaced by another, so that what was written to the device stays true.
type Table []BlockID

// Slot is where K and V of the token at position pos lie on the device: block*BlockSize + offset.
func (t Table) Slot(pos int) uint32 {
	return uint32(t[pos/BlockSize])*BlockSize + uint32(pos%BlockSize)
}

// Capacity is the number of tokens that the table has room for on the device.
func (t Table) Capacity() int { return len(t) * BlockSize }

// NumBlocksFor is how many blocks n tokens need on the device.
func NumBlocksFor(n int) int { return (n + BlockSize - 1) / BlockSize }
