package kvcache

import (
	"crypto/sha256"
	"encoding/binary"
)

// digest is the hash of a full block and of everything before it.
type digest [sha256.Size]byte

// Chain keeps the hashes of one sequence's full blocks, so that each is computed once. It belongs to one sequence, whose
// tokens only grow, and to one pool.
type Chain struct {
	// Salt separates what must not be shared: sequences with different salts never find each other's blocks, so that
	// nobody learns from a fast answer what others have asked.
	Salt string

	hashes []digest // [0] stands for what comes before the first block; [i+1] is that of block i
}

// hasher computes hashes:
//
//	before the first block: H("pagelight kv", block size, namespace, salt)
//	block i:                H(hash of block i-1, its tokens, 4 bytes each)
//
// Equal hashes on different machines mean equal content, since nothing random is in them.
type hasher struct {
	sum       func([]byte) digest // SHA-256; tests use worse ones
	size      int
	namespace string
	buf       []byte
}

func newHasher(namespace string, size int) hasher {
	return hasher{
		sum:  func(b []byte) digest { return sha256.Sum256(b) },
		size: size, namespace: namespace, buf: make([]byte, 0, sha256.Size+4*size),
	}
}

// extend makes sure that the chain has the hash of block i, and returns it.
func (h *hasher) extend(c *Chain, tokens []int32, i int) digest {
	if len(c.hashes) == 0 {
		b := append(h.buf[:0], "pagelight kv"...)
		b = binary.LittleEndian.AppendUint32(b, uint32(h.size))
		for _, s := range []string{h.namespace, c.Salt} {
			b = binary.LittleEndian.AppendUint64(b, uint64(len(s)))
			b = append(b, s...)
		}
		c.hashes = append(c.hashes, h.sum(b))
	}
	for k := len(c.hashes) - 1; k <= i; k++ {
		b := append(h.buf[:0], c.hashes[k][:]...)
		for _, id := range tokens[k*h.size : (k+1)*h.size] {
			b = binary.LittleEndian.AppendUint32(b, uint32(id))
		}
		c.hashes = append(c.hashes, h.sum(b))
	}
	return c.hashes[i+1]
}
