package tokenizer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"unicode/utf8"
)

const (
	maxVocabulary = 1 << 22 // ids of a tokenizer.json
	maxMerges     = 1 << 22
)

// mergeModel is the BPE model of a tokenizer.json: a list of pairs of tokens,
// of which the first in the list is merged first. It is never written after
// seal, so any number of goroutines may use it.
//
// Source: Hugging Face's tokenizers (models/bpe/model.rs, word.rs).
type mergeModel struct {
	// table has the bytes that a token stands for. For a byte-level model
	// these are not its spelling in the file; tokens that spell no bytes
	// have the type USER_DEFINED and their spelling. Ids that do not exist
	// are empty.
	table     pieceTable
	index     *pieceIndex
	literal   map[string]int32 // the tokens that spell no bytes
	byteLevel bool

	merges mergeTable
	joints joints
	whole  bool // nothing may be cut: some merge is of tokens that stand for unknown characters

	unk          int32 // -1: unknown characters vanish
	fuseUnk      bool
	fallback     [256]int32 // ids of <0x00> to <0xFF>; used if byteFallback
	byteFallback bool
	ignoreMerges bool // a word that is a token is that token

	base [256]int32 // ids of single bytes (byte-level) or of ASCII characters, -1 if there is none

	scratch sync.Pool // *mergeScratch
}

// mergeTable finds the merge of two tokens: open addressing without
// pointers. The multiplier is drawn at random, so that a hostile list
// cannot be made to collide.
type mergeTable struct {
	pairs   []uint64 // left<<32 | right, in the order of the file
	results []int32
	slots   []int32 // index of a pair + 1, 0 for a free slot; length is a power of two
	factor  uint64
}

func newMergeTable(capacity int) mergeTable {
	size := 16
	for size < 2*capacity {
		size *= 2
	}
	return mergeTable{
		pairs: make([]uint64, 0, capacity), results: make([]int32, 0, capacity),
		slots: make([]int32, size), factor: rand.Uint64() | 1,
	}
}

// slot is where a pair stands, or would.
func (t *mergeTable) slot(pair uint64) uint64 {
	mask := uint64(len(t.slots) - 1)
	h := pair * t.factor
	for h = (h ^ h>>32) & mask; ; h = (h + 1) & mask {
		if s := t.slots[h]; s == 0 || t.pairs[s-1] == pair {
			return h
		}
	}
}

// add enters a merge. A pair that comes again counts where it comes last.
func (t *mergeTable) add(left, right, result int32) {
	pair := uint64(uint32(left))<<32 | uint64(uint32(right))
	h := t.slot(pair)
	t.pairs = append(t.pairs, pair)
	t.results = append(t.results, result)
	t.slots[h] = int32(len(t.pairs))
}

// find returns the place of a merge in the list, which is the smaller the
// earlier it happens, and the token that it makes.
func (t *mergeTable) find(left, right int32) (rank, result int32, ok bool) {
	s := t.slots[t.slot(uint64(uint32(left))<<32|uint64(uint32(right)))]
	if s == 0 {
		return 0, 0, false
	}
	return s - 1, t.results[s-1], true
}

// newMergeModel makes a model of the tokens by id, "" for an id that does
// not exist, without merges.
func newMergeModel(tokens []string, byteLevel bool) (*mergeModel, error) {
	m := &mergeModel{byteLevel: byteLevel, literal: map[string]int32{}, unk: -1}
	for i := range m.base {
		m.base[i], m.fallback[i] = -1, -1
	}
	m.index = newPieceIndex(len(tokens))
	var raw []byte
	for id, token := range tokens {
		kind, spells := typeNormal, true
		if byteLevel {
			if raw, spells = unspell(raw[:0], token); !spells {
				kind = typeUserDefined
			}
		}
		switch {
		case len(token) > maxPieceBytes:
			return nil, fmt.Errorf("token %d has %d bytes, more than the limit of %d", id, len(token), maxPieceBytes)
		case !spells:
			m.literal[token] = int32(id)
			m.table.add([]byte(token), 0, kind)
			continue
		case byteLevel:
			m.table.add(raw, 0, kind)
		default:
			m.table.add([]byte(token), 0, kind)
		}
		if token != "" {
			m.index.insert(&m.table, int32(id)) // the file's keys differ from each other
		}
	}
	m.table.seal()
	for b := range m.base {
		if byteLevel || b < utf8.RuneSelf {
			m.base[b] = m.index.find(&m.table, []byte{byte(b)})
		}
		m.fallback[b] = m.pieceToID(fmt.Appendf(nil, "<0x%02X>", b))
	}
	m.scratch.New = func() any { return new(mergeScratch) }
	return m, nil
}

func (m *mergeModel) size() int { return m.table.len() }

// pieceToID finds a token by its spelling in the file.
func (m *mergeModel) pieceToID(piece []byte) int32 {
	if m.byteLevel {
		raw, spells := unspell(nil, piece)
		if !spells {
			if id, ok := m.literal[string(piece)]; ok {
				return id
			}
			return -1
		}
		piece = raw
	}
	if len(piece) == 0 {
		return -1
	}
	return m.index.find(&m.table, piece)
}

// spelling is the inverse of pieceToID; "" for an id that does not exist.
func (m *mergeModel) spelling(id int32) string {
	piece := m.table.piece(id)
	if m.byteLevel && m.table.types[id] == typeNormal {
		return spell(piece)
	}
	return string(piece)
}

// addMerge enters the next merge of the list.
func (m *mergeModel) addMerge(left, right []byte) error {
	var ids [3]int32
	joined := append(append([]byte(nil), left...), right...)
	for i, text := range [][]byte{left, right, joined} {
		if ids[i] = m.pieceToID(text); ids[i] < 0 {
			return fmt.Errorf("merge %d: %q is not in the vocabulary", len(m.merges.pairs), clip(text))
		}
	}
	m.merges.add(ids[0], ids[1], ids[2])
	return nil
}

// seal checks the options and builds what encoding needs, after the last
// merge.
func (m *mergeModel) seal() error {
	unknown := map[int32]bool{m.unk: true}
	if m.byteFallback {
		for b, id := range m.fallback {
			if id < 0 {
				return fmt.Errorf("byte_fallback is on, but there is no token <0x%02X>", b)
			}
			unknown[id] = true
		}
	}
	if m.byteLevel && m.byteFallback {
		return errors.New("byte_fallback together with a ByteLevel pre_tokenizer is not supported")
	}
	for _, pair := range m.merges.pairs {
		if unknown[int32(pair>>32)] || unknown[int32(uint32(pair))] {
			m.whole = true
		}
	}
	m.joints = newJoints(func(visit func(left, right rune)) {
		for _, pair := range m.merges.pairs {
			left, right := m.table.piece(int32(pair>>32)), m.table.piece(int32(uint32(pair)))
			if m.byteLevel {
				visit(rune(left[len(left)-1]), rune(right[0]))
				continue
			}
			l, _ := utf8.DecodeLastRune(left)
			r, _ := utf8.DecodeRune(right)
			visit(l, r)
		}
	})
	return nil
}

// mergeSymbol is a token of a word that is being merged; id -1 once it is
// part of the one before it.
type mergeSymbol struct{ id, prev, next int32 }

// mergeStep is a merge that is possible: of the symbol at pos with the next.
type mergeStep struct{ rank, pos, result int32 }

type mergeScratch struct {
	symbols []mergeSymbol
	heap    stepHeap
	word    int // ids that were there before this word
}

// encode appends the ids of one word. Time is O(n log n) in the longest part
// that the joints leave uncut.
func (m *mergeModel) encode(ids []int32, s *mergeScratch, word string, special func(int32) bool) []int32 {
	if m.ignoreMerges {
		// A word that spells a special token out is no such token.
		if id := m.index.find(&m.table, []byte(word)); id >= 0 && !special(id) {
			return append(ids, id)
		}
	}
	s.word = len(ids)
	s.symbols = s.symbols[:0]
	last := rune(-1) // character of the last symbol, -1 if that is no character's own token
	for i := 0; i < len(word); {
		r, n, id := rune(word[i]), 1, m.base[word[i]]
		if r >= utf8.RuneSelf && !m.byteLevel {
			r, n = utf8.DecodeRuneInString(word[i:])
			id = m.index.find(&m.table, []byte(word[i:i+n]))
		}
		i += n
		if id < 0 {
			if m.unknown(s, word[i-n:i]) {
				last = -1
			}
			continue
		}
		if len(s.symbols) > 0 && !m.whole && (last < 0 || !m.joints.has(last, r)) {
			ids = m.merge(ids, s)
		}
		s.symbols = append(s.symbols, mergeSymbol{id: id})
		last = r
	}
	return m.merge(ids, s)
}

// unknown adds what stands for a character that is no token; false if that
// is nothing.
func (m *mergeModel) unknown(s *mergeScratch, char string) bool {
	if m.byteFallback {
		for _, b := range []byte(char) {
			s.symbols = append(s.symbols, mergeSymbol{id: m.fallback[b]})
		}
		return true
	}
	if m.unk >= 0 {
		s.symbols = append(s.symbols, mergeSymbol{id: m.unk})
	}
	return m.unk >= 0
}

// merge merges s.symbols, appends their ids and clears them.
func (m *mergeModel) merge(ids []int32, s *mergeScratch) []int32 {
	symbols := s.symbols
	if len(symbols) == 0 {
		return ids
	}
	s.heap = s.heap[:0]
	for i := range symbols {
		symbols[i].prev, symbols[i].next = int32(i-1), int32(i+1)
	}
	symbols[len(symbols)-1].next = -1
	propose := func(left int32) {
		if left < 0 || symbols[left].next < 0 {
			return
		}
		if rank, result, ok := m.merges.find(symbols[left].id, symbols[symbols[left].next].id); ok {
			s.heap.push(mergeStep{rank, left, result})
		}
	}
	for i := range symbols {
		propose(int32(i))
	}
	for len(s.heap) > 0 {
		step := s.heap.pop()
		left := &symbols[step.pos]
		if left.id < 0 || left.next < 0 {
			continue
		}
		right := &symbols[left.next]
		if _, result, ok := m.merges.find(left.id, right.id); !ok || result != step.result {
			continue // one of the two has changed since
		}
		left.id, left.next, right.id = step.result, right.next, -1
		if left.next >= 0 {
			symbols[left.next].prev = step.pos
		}
		propose(left.prev)
		propose(step.pos)
	}
	for i := int32(0); i >= 0; i = symbols[i].next {
		id := symbols[i].id
		if m.fuseUnk && id == m.unk && len(ids) > s.word && ids[len(ids)-1] == id {
			continue
		}
		ids = append(ids, id)
	}
	s.symbols = symbols[:0]
	return ids
}

// stepHeap is a priority queue: the smallest rank first, of equals the
// leftmost.
type stepHeap []mergeStep

func (a mergeStep) before(b mergeStep) bool {
	return a.rank < b.rank || a.rank == b.rank && a.pos < b.pos
}

func (h *stepHeap) push(m mergeStep) {
	*h = append(*h, m)
	heap := *h
	i := len(heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !m.before(heap[parent]) {
			break
		}
		heap[i] = heap[parent]
		i = parent
	}
	heap[i] = m
}

func (h *stepHeap) pop() mergeStep {
	heap := *h
	top, n := heap[0], len(heap)-1
	m := heap[n]
	heap = heap[:n]
	*h = heap
	i := 0
	for {
		child := 2*i + 1
		if child >= n {
			break
		}
		if child+1 < n && heap[child+1].before(heap[child]) {
			child++
		}
		if !heap[child].before(m) {
			break
		}
		heap[i] = heap[child]
		i = child
	}
	if n > 0 {
		heap[i] = m
	}
	return top
}
