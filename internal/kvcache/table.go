package kvcache

// Table lists a sequence's blocks in order: token t lies in block Table[t/BlockSize] at offset t%BlockSize. Tables only
// grow at their end.
type Table []BlockID

// Slot is where K and V of the token at position pos lie: block*BlockSize + offset.
func (t Table) Slot(pos int) uint32 {
	return uint32(t[pos/BlockSize])*BlockSize + uint32(pos%BlockSize)
}

// Capacity is the number of tokens that the table has room for.
func (t Table) Capacity() int { return len(t) * BlockSize }
