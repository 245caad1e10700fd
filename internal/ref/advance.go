package ref

// The codes that stand for a token where there is none; every id is below them.
const (
	NoToken   = 0xFFFFFFFD // in a ring: the row had ended
	Undecided = 0xFFFFFFFE // of Sample: the candidates do not prove which token it is
)

// RingSlots is the number of steps that a ring holds.
const RingSlots = 64

// The words of AdvanceArgs.Counts.
const (
	Seen   = 1 << 31 // the id is in the prompt or in the output
	Listed = 1 << 30 // the id has an entry in a list of biases
	Times  = 1<<30 - 1
)

// State is how far a row of a burst is: vec4<u32>.
type State struct {
	Count uint32 // steps so far
	Left  uint32 // tokens that the row may still produce; 0: it has ended, or waits for the host
	Stops uint32 // ids of its row of Stops that count
	Flags uint32 // bit 0: its logits are changed; bit 1: its tokens are counted; from bit 8 on, its record in what says how
}

// AdvanceArgs are the arguments of Advance.
type AdvanceArgs struct {
	MaxBlocks   int         // blocks of a row of BlockTables
	RingRows    int         // elements of a slot of Ring
	Vocab       int         // elements of a row of Counts
	IDs         []uint32    // [M] what was chosen
	States      []State     // [M]
	Stops       [][8]uint32 // [M]
	BlockTables []uint32    // [S, MaxBlocks]
	Tokens      []Token     // [M]
	Ring        []uint32    // [RingSlots, RingRows]
	Counts      []uint32    // [records, Vocab]; nil: nothing is counted
}

// Advance turns the tokens that were chosen for the rows lo..hi-1 into the input of their next step.
func Advance(a *AdvanceArgs, lo, hi int) {
	for m := lo; m < hi; m++ {
		s, slot := &a.States[m], &a.Ring[int(a.States[m].Count%RingSlots)*a.RingRows+m]
		s.Count++
		if s.Left == 0 {
			*slot = NoToken
			continue
		}
		id := a.IDs[m]
		*slot = id
		if id >= NoToken {
			s.Left = 0
			continue
		}
		if a.Counts != nil && s.Flags&2 == 2 {
			n := &a.Counts[int(s.Flags>>8)*a.Vocab+int(id)]
			*n = (*n | Seen) + 1
		}
		s.Left--
		for _, stop := range a.Stops[m][:min(s.Stops, 8)] {
			if stop == id {
				s.Left = 0
			}
		}
		t := &a.Tokens[m]
		if s.Left == 0 {
			t.Slot = NoSlot
			continue
		}
		t.ID, t.Position, t.Slot = id, t.Position+1, NoSlot
		if block := int(t.Position / BlockSize); block < a.MaxBlocks {
			t.Slot = a.BlockTables[int(t.Seq)*a.MaxBlocks+block]*BlockSize + t.Position%BlockSize
		}
	}
}
