package tokenizer

import (
	"errors"
	"fmt"
	"sync"
	"unicode/utf8"
)

// spModel is a SentencePiece BPE model, ready to encode. It is never
// written after newSPModel, so any number of goroutines may use it.
type spModel struct {
	table       pieceTable
	normal      *pieceIndex // NORMAL, USER_DEFINED and UNUSED pieces: what merging can form
	reserved    *pieceIndex // the others: CONTROL, UNKNOWN, BYTE
	userDefined *trie
	chars       *charsMap // nil: identity
	unk         int32
	bytes       [256]int32 // ids of the byte pieces; used if byteFall
	byteFall    bool
	hasUnused   bool
	unkSurface  string
	wsSuffix    bool
	dummyPrefix bool
	removeExtra bool
	escapeSpace bool

	// joints are the character pairs inside pieces.
	joints joints

	scratch sync.Pool // *bpeScratch
}

// newSPModel checks the model as ModelInterface::InitializePieces of
// SentencePiece does, and builds the indices.
func newSPModel(p *modelProto, breathe *pauses) (*spModel, error) {
	switch p.modelType {
	case 2:
	case 1:
		return nil, errors.New("model_type is UNIGRAM; only BPE is supported")
	case 3:
		return nil, errors.New("model_type is WORD; only BPE is supported")
	case 4:
		return nil, errors.New("model_type is CHAR; only BPE is supported")
	default:
		return nil, fmt.Errorf("model_type %d is unknown; only BPE (2) is supported", p.modelType)
	}
	if len(p.denormMap) > 0 {
		return nil, errors.New("denormalizer_spec has a precompiled_charsmap, which is not supported")
	}
	m := &spModel{
		table: p.pieces, userDefined: newTrie(), unk: -1, byteFall: p.byteFall,
		unkSurface: p.unkSurface, wsSuffix: p.wsSuffix, dummyPrefix: p.dummyPrefix,
		removeExtra: p.removeExtra, escapeSpace: p.escapeSpace,
	}
	if len(p.charsMap) > 0 {
		var err error
		if m.chars, err = parseCharsMap(p.charsMap); err != nil {
			return nil, err
		}
	}
	n := m.table.len()
	numReserved := 0
	for _, kind := range m.table.types {
		if kind == typeUnknown || kind == typeControl || kind == typeByte {
			numReserved++
		}
	}
	m.normal, m.reserved = newPieceIndex(n-numReserved), newPieceIndex(numReserved)
	for i := range m.bytes {
		m.bytes[i] = -1
	}
	for id := range int32(n) {
		breathe.step()
		index := m.normal
		piece := m.table.piece(id)
		switch m.table.types[id] {
		case typeUserDefined:
			m.userDefined.add(string(piece), id)
		case typeUnused:
			m.hasUnused = true
		case typeUnknown:
			if m.unk >= 0 {
				return nil, fmt.Errorf("pieces %d and %d are both of type UNKNOWN", m.unk, id)
			}
			m.unk, index = id, m.reserved
		case typeControl:
			index = m.reserved
		case typeByte:
			if !p.byteFall {
				return nil, fmt.Errorf("piece %d is a byte piece, but byte_fallback is off", id)
			}
			b, ok := byteOfPiece(piece)
			if !ok {
				return nil, fmt.Errorf("piece %d (%q) is of type BYTE but not of the form <0xAB>", id, clip(piece))
			}
			m.bytes[b], index = id, m.reserved
		}
		if !index.insert(&m.table, id) {
			return nil, fmt.Errorf("piece %d (%q) is defined twice", id, clip(piece))
		}
	}
	if m.unk < 0 {
		return nil, errors.New("no piece of type UNKNOWN")
	}
	if m.byteFall {
		for b, id := range m.bytes {
			if id < 0 {
				return nil, fmt.Errorf("byte_fallback is on, but there is no piece <0x%02X>", b)
			}
		}
	}
	m.joints = newJoints(func(visit func(left, right rune)) { m.eachJoint(breathe, visit) })
	m.scratch.New = func() any { return new(bpeScratch) }
	return m, nil
}

// clip shortens text from a file for an error message.
func clip(b []byte) []byte { return b[:min(len(b), 40)] }

func byteOfPiece(piece []byte) (byte, bool) {
	if len(piece) != 6 || string(piece[:3]) != "<0x" || piece[5] != '>' {
		return 0, false
	}
	var v byte
	for _, c := range piece[3:5] {
		switch {
		case '0' <= c && c <= '9':
			v = v<<4 | (c - '0')
		case 'A' <= c && c <= 'F':
			v = v<<4 | (c - 'A' + 10)
		default:
			return 0, false
		}
	}
	return v, true
}

func (m *spModel) eachJoint(breathe *pauses, visit func(left, right rune)) {
	for id := range int32(m.table.len()) {
		breathe.step()
		switch m.table.types[id] {
		case typeNormal, typeUserDefined, typeUnused:
		default:
			continue // never formed by merging
		}
		left := rune(-1)
		for piece := m.table.piece(id); len(piece) > 0; {
			r, n := utf8.DecodeRune(piece)
			if left >= 0 {
				visit(left, r)
			}
			left, piece = r, piece[n:]
		}
	}
}

func (m *spModel) size() int { return m.table.len() }

// pieceToID is SentencePiece's PieceToId without its fallback: reserved
// pieces first; -1 if there is none.
func (m *spModel) pieceToID(piece []byte) int32 {
	if id := m.reserved.find(&m.table, piece); id >= 0 {
		return id
	}
	return m.normal.find(&m.table, piece)
}

// symbol is a piece under construction: text[start:end] of the normalized
// text, in a doubly linked list.
type symbol struct {
	start, end int32
	prev, next int32 // index of the neighbour, -1 at the ends of a part
	frozen     bool  // a user-defined piece: never merged
}

// merge is a candidate: join symbols left and right. It is stale when either
// has changed since, which shows in the size of the result.
type merge struct {
	score       float32
	left, right int32
	size        int32 // bytes of the result
}

type bpeScratch struct {
	text    []byte // normalized text
	symbols []symbol
	heap    []merge
	halves  map[string][2]string // unused piece -> the two it was made of
	base    int                  // ids that were there before this segment
}

func (h *bpeScratch) less(a, b merge) bool {
	return a.score > b.score || a.score == b.score && a.left < b.left
}

func (h *bpeScratch) push(m merge) {
	h.heap = append(h.heap, m)
	i := len(h.heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(m, h.heap[parent]) {
			break
		}
		h.heap[i] = h.heap[parent]
		i = parent
	}
	h.heap[i] = m
}

func (h *bpeScratch) pop() merge {
	top := h.heap[0]
	n := len(h.heap) - 1
	m := h.heap[n]
	h.heap = h.heap[:n]
	i := 0
	for {
		child := 2*i + 1
		if child >= n {
			break
		}
		if child+1 < n && h.less(h.heap[child+1], h.heap[child]) {
			child++
		}
		if !h.less(h.heap[child], m) {
			break
		}
		h.heap[i] = h.heap[child]
		i = child
	}
	if n > 0 {
		h.heap[i] = m
	}
	return top
}

// encode appends the ids of one segment of text, without added tokens.
// Time is O(n log n) in the longest part that the joints leave uncut.
func (m *spModel) encode(ids []int32, text string, prefix bool) []int32 {
	s := m.scratch.Get().(*bpeScratch)
	defer m.scratch.Put(s)
	s.base = len(ids)
	s.text = m.normalize(s.text[:0], text, prefix)
	for start := 0; start < len(s.text); {
		start = m.split(s, start)
		m.mergePart(s)
		ids = m.emit(ids, s)
	}
	// A pasted book must not stay allocated for the life of the process.
	if cap(s.text) > 1<<20 {
		*s = bpeScratch{}
	}
	return ids
}

// split fills s.symbols with the characters of the part that begins at
// start, and returns where the next part begins.
func (m *spModel) split(s *bpeScratch, start int) int {
	s.symbols = s.symbols[:0]
	last := rune(-1)
	for start < len(s.text) {
		size, _ := longestMatch(m.userDefined, s.text[start:])
		frozen := size > 0
		var r rune
		if frozen {
			r = -1
		} else {
			r, size = utf8.DecodeRune(s.text[start:])
		}
		n := int32(len(s.symbols))
		// Unused pieces are taken apart with what merging has seen in the
		// entire text, so then it has to be merged as one part.
		if n > 0 && !m.hasUnused && (frozen || last < 0 || !m.joints.has(last, r)) {
			break
		}
		s.symbols = append(s.symbols, symbol{int32(start), int32(start + size), n - 1, n + 1, frozen})
		start += size
		last = r
	}
	s.symbols[len(s.symbols)-1].next = -1
	return start
}

func (m *spModel) mergePart(s *bpeScratch) {
	s.heap = s.heap[:0]
	clear(s.halves)
	for i := 1; i < len(s.symbols); i++ {
		m.propose(s, int32(i-1), int32(i))
	}
	for len(s.heap) > 0 {
		top := s.pop()
		left, right := &s.symbols[top.left], &s.symbols[top.right]
		if left.start == left.end || right.start == right.end || right.end-left.start != top.size {
			continue
		}
		left.end, left.next = right.end, right.next
		if right.next >= 0 {
			s.symbols[right.next].prev = top.left
		}
		right.start = right.end
		m.propose(s, left.prev, top.left)
		m.propose(s, top.left, left.next)
	}
}

func (m *spModel) propose(s *bpeScratch, left, right int32) {
	if left < 0 || right < 0 || s.symbols[left].frozen || s.symbols[right].frozen {
		return
	}
	start, end := s.symbols[left].start, s.symbols[right].end
	id := m.normal.find(&m.table, s.text[start:end])
	if id < 0 {
		return
	}
	s.push(merge{m.table.scores[id], left, right, end - start})
	if m.table.types[id] == typeUnused {
		if s.halves == nil {
			s.halves = map[string][2]string{}
		}
		middle := s.symbols[right].start
		s.halves[string(s.text[start:end])] = [2]string{string(s.text[start:middle]), string(s.text[middle:end])}
	}
}

// emit appends the ids of the merged symbols: unused pieces taken apart,
// characters without a piece as bytes or as one unknown for each run.
func (m *spModel) emit(ids []int32, s *bpeScratch) []int32 {
	for i := int32(0); i >= 0; i = s.symbols[i].next {
		sym := s.symbols[i]
		ids = m.emitPiece(ids, s, s.text[sym.start:sym.end])
	}
	return ids
}

func (m *spModel) emitPiece(ids []int32, s *bpeScratch, piece []byte) []int32 {
	id := m.pieceToID(piece)
	if id >= 0 && m.table.types[id] == typeUnused {
		// Each half is shorter than the whole, so this ends; its depth is at
		// most the length of a piece in characters.
		if h, ok := s.halves[string(piece)]; ok {
			ids = m.emitPiece(ids, s, []byte(h[0]))
			return m.emitPiece(ids, s, []byte(h[1]))
		}
		return append(ids, id)
	}
	if id >= 0 && id != m.unk {
		return append(ids, id)
	}
	if m.byteFall {
		for _, b := range piece {
			ids = append(ids, m.bytes[b])
		}
		return ids
	}
	if n := len(ids); n > s.base && ids[n-1] == m.unk {
		return ids
	}
	return append(ids, m.unk)
}
