package tokenizer

import "hash/maphash"

// pieceTable holds the pieces of a vocabulary in flat slices without
// pointers: the garbage collector of Go's WebAssembly port scans every
// pointer with the page's only thread, and 100,000 strings cost it
// milliseconds at each cycle.
type pieceTable struct {
	text    []byte      // all pieces, one after the other
	ends    []uint32    // [numPieces] piece i is text[ends[i-1]:ends[i]]
	scores  []float32   // [numPieces]
	types   []pieceType // [numPieces]
	longest int         // bytes of the longest piece
}

func (t *pieceTable) len() int { return len(t.ends) }

func (t *pieceTable) add(text []byte, score float32, kind pieceType) {
	t.text = append(t.text, text...)
	t.ends = append(t.ends, uint32(len(t.text)))
	t.scores = append(t.scores, score)
	t.types = append(t.types, kind)
	t.longest = max(t.longest, len(text))
}

// seal drops the spare capacity that add's growth has left.
func (t *pieceTable) seal() {
	t.text = append([]byte(nil), t.text...)
	t.ends = append([]uint32(nil), t.ends...)
	t.scores = append([]float32(nil), t.scores...)
	t.types = append([]pieceType(nil), t.types...)
}

// piece returns the text of piece i, which must exist. It aliases the table.
func (t *pieceTable) piece(i int32) []byte {
	start := uint32(0)
	if i > 0 {
		start = t.ends[i-1]
	}
	return t.text[start:t.ends[i]:t.ends[i]]
}

// pieceIndex finds the id of a piece by its text: open addressing over
// the table's own bytes. The hash is seeded per process, so that a hostile
// vocabulary cannot be made to collide.
type pieceIndex struct {
	slots []int32 // piece id + 1, 0 for a free slot; length is a power of two
	used  int
	seed  maphash.Seed
}

func newPieceIndex(capacity int) *pieceIndex {
	size := 16
	for size < 2*capacity {
		size *= 2
	}
	return &pieceIndex{slots: make([]int32, size), seed: maphash.MakeSeed()}
}

// insert adds piece id and reports false if a piece of the same text is
// there already.
func (x *pieceIndex) insert(t *pieceTable, id int32) bool {
	text := t.piece(id)
	mask := uint64(len(x.slots) - 1)
	for h := maphash.Bytes(x.seed, text) & mask; ; h = (h + 1) & mask {
		switch s := x.slots[h]; {
		case s == 0:
			x.slots[h] = id + 1
			x.used++
			return true
		case string(t.piece(s-1)) == string(text):
			return false
		}
	}
}

// find returns the id of the piece text, or -1.
func (x *pieceIndex) find(t *pieceTable, text []byte) int32 {
	if x.used == 0 || len(text) > t.longest {
		return -1
	}
	mask := uint64(len(x.slots) - 1)
	for h := maphash.Bytes(x.seed, text) & mask; ; h = (h + 1) & mask {
		s := x.slots[h]
		if s == 0 {
			return -1
		}
		if string(t.piece(s-1)) == string(text) {
			return s - 1
		}
	}
}

// trie finds the longest of a set of strings at the start of a text. Its
// edges are one map without pointers: the sets are small (a few thousand
// added tokens).
type trie struct {
	edges map[uint64]int32 // node<<8 | byte -> node
	leaf  []int32          // [nodes] value + 1, 0 if no string ends here
	first [256]bool        // bytes that some string starts with
}

func newTrie() *trie { return &trie{edges: map[uint64]int32{}, leaf: make([]int32, 1)} }

// add enters s, which must not be empty; a later value replaces an earlier.
func (t *trie) add(s string, value int32) {
	node := int32(0)
	t.first[s[0]] = true
	for i := range len(s) {
		key := uint64(node)<<8 | uint64(s[i])
		next, ok := t.edges[key]
		if !ok {
			next = int32(len(t.leaf))
			t.leaf = append(t.leaf, 0)
			t.edges[key] = next
		}
		node = next
	}
	t.leaf[node] = value + 1
}

// longest returns the length and value of the longest string that text
// starts with, or 0 bytes.
func longestMatch[T string | []byte](t *trie, text T) (size int, value int32) {
	if len(text) == 0 || !t.first[text[0]] {
		return 0, -1
	}
	value = -1
	node := int32(0)
	for i := range len(text) {
		next, ok := t.edges[uint64(node)<<8|uint64(text[i])]
		if !ok {
			break
		}
		node = next
		if v := t.leaf[node]; v > 0 {
			size, value = i+1, v-1
		}
	}
	return size, value
}
