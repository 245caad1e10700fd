package ref

import (
	"slices"
	"testing"
)

// By hand: six rows, two steps.
func TestAdvance(t *testing.T) {
	const running, last, ended, stopped, undecided, lastBlock = 0, 1, 2, 3, 4, 5
	counted := func(record uint32) uint32 { return 2 | record<<8 }
	a := AdvanceArgs{
		MaxBlocks: 2, RingRows: 6, Vocab: 9, IDs: []uint32{7, 7, 7, 7, Undecided, 7}, Counts: make([]uint32, 6*9),
		States:      []State{{63, 9, 1, counted(3)}, {0, 1, 0, counted(1)}, {5, 0, 0, counted(2)}, {0, 9, 2, 0}, {0, 9, 8, counted(4)}, {0, 9, 0, 1}},
		Stops:       [][8]uint32{{6, 7}, {}, {}, {6, 7}, {}, {7}},
		BlockTables: []uint32{40, 50, 60, 70},
		Tokens:      []Token{{1, 15, 655, 0}, {1, 3, 643, 0}, {1, 3, 643, 0}, {1, 3, 643, 0}, {1, 3, 643, 0}, {1, 30, 1134, 1}},
		Ring:        make([]uint32, RingSlots*6),
	}
	Advance(&a, 0, 3)
	Advance(&a, 3, 6)
	if want := (Token{7, 16, 50 * 16, 0}); a.Tokens[running] != want {
		t.Errorf("a row in the middle is %v, want %v", a.Tokens[running], want)
	}
	if want := (Token{7, 31, 70*16 + 15, 1}); a.Tokens[lastBlock] != want {
		t.Errorf("a row of the second sequence is %v, want %v", a.Tokens[lastBlock], want)
	}
	for _, m := range []int{last, stopped} {
		if want := (Token{1, 3, NoSlot, 0}); a.Tokens[m] != want {
			t.Errorf("row %d, which ends, is %v, want %v", m, a.Tokens[m], want)
		}
	}
	for _, m := range []int{ended, undecided} {
		if want := (Token{1, 3, 643, 0}); a.Tokens[m] != want {
			t.Errorf("row %d, which stays, is %v, want %v", m, a.Tokens[m], want)
		}
	}
	Advance(&a, 0, 6)
	if want := []State{{65, 7, 1, counted(3)}, {2, 0, 0, counted(1)}, {7, 0, 0, counted(2)}, {2, 0, 2, 0}, {2, 0, 8, counted(4)}, {2, 7, 0, 1}}; !slices.Equal(a.States, want) {
		t.Errorf("states are %v, want %v", a.States, want)
	}
	if got := a.Tokens[lastBlock].Slot; got != NoSlot {
		t.Errorf("a token beyond the table has slot %d", got)
	}
	slot := func(n int) []uint32 { return a.Ring[n*6:][:6] }
	if got, want := slot(0), []uint32{7, 7, 0, 7, Undecided, 7}; !slices.Equal(got, want) {
		t.Errorf("slot 0 of the ring is %v, want %v", got, want)
	}
	if got, want := slot(1), []uint32{0, NoToken, 0, NoToken, NoToken, 7}; !slices.Equal(got, want) {
		t.Errorf("slot 1 of the ring is %v, want %v", got, want)
	}
	if got := []uint32{slot(63)[running], slot(5)[ended], slot(6)[ended]}; !slices.Equal(got, []uint32{7, NoToken, NoToken}) {
		t.Errorf("slots 63, 5 and 6 have %v", got)
	}
	counts := make([]uint32, 6*9)
	counts[3*9+7], counts[9+7] = Seen|2, Seen|1
	if !slices.Equal(a.Counts, counts) {
		t.Errorf("counts are %v, want %v", a.Counts, counts)
	}
}
