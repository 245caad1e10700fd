package kvcache

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// small is a pool of n blocks of 4 tokens.
func small(n int) *Pool { return NewPool(Config{NumBlocks: n, BlockSize: 4}) }

func allocate(t *testing.T, p *Pool, n int) Table {
	t.Helper()
	table, ok := p.Allocate(nil, n)
	if !ok {
		t.Fatalf("Allocate(%d) refused with %d free", n, p.NumFree())
	}
	return table
}

func wantFree(t *testing.T, p *Pool, want ...BlockID) {
	t.Helper()
	if got := p.FreeList(); !slices.Equal(got, want) {
		t.Errorf("free list = %v, want %v", got, want)
	}
	if err := p.Check(); err != nil {
		t.Error(err)
	}
}

func TestAllocateTakesOldestFreeBlocksOrNone(t *testing.T) {
	p := small(4)
	a := allocate(t, p, 3)
	if !slices.Equal(a, Table{0, 1, 2}) {
		t.Fatalf("Allocate(3) = %v, want [0 1 2]", a)
	}
	if got, ok := p.Allocate(a, 2); ok || len(got) != 3 {
		t.Fatalf("Allocate(2) with one free block = %v, %v", got, ok)
	}
	wantFree(t, p, 3)
	a, _ = p.Allocate(a, 1)
	if !slices.Equal(a, Table{0, 1, 2, 3}) {
		t.Errorf("table after one more = %v", a)
	}
	wantFree(t, p)
}

func TestFreePanicsOnAFreeBlock(t *testing.T) {
	p := small(1)
	a := allocate(t, p, 1)
	p.Free(a)
	defer func() {
		if recover() == nil {
			t.Error("freeing a free block did not panic")
		}
	}()
	p.Free(a)
}

func TestFreePutsTailFirstAndEmptyBlocksInFront(t *testing.T) {
	p := small(8)
	a, b := allocate(t, p, 3), allocate(t, p, 3) // [0 1 2], [3 4 5]
	tokens := count(12)
	p.Register(&Chain{}, tokens, a, 0, 2) // 2 stays empty
	p.Register(&Chain{}, count(12)[4:], b, 0, 1)
	wantFree(t, p, 6, 7)
	p.Free(a)
	wantFree(t, p, 2, 6, 7, 1, 0)
	p.Free(b)
	wantFree(t, p, 4, 5, 2, 6, 7, 1, 0, 3)
	if s := p.Stats(); s.NumFree != 8 || s.NumCached != 3 || s.Evictions != 0 {
		t.Errorf("stats = %+v", s)
	}
	// The empty ones go first, then the tail of a, and only then its beginning.
	c := allocate(t, p, 6)
	if want := (Table{4, 5, 2, 6, 7, 1}); !slices.Equal(c, want) {
		t.Errorf("Allocate(6) = %v, want %v", c, want)
	}
	if s := p.Stats(); s.NumCached != 2 || s.Evictions != 1 {
		t.Errorf("stats = %+v", s)
	}
	if got := p.Lookup(nil, &Chain{}, tokens, 12); !slices.Equal(got, Table{0}) {
		t.Errorf("Lookup = %v, want [0]", got)
	}
}

func TestPoolStaysConsistentUnderRandomUse(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	p := small(37)
	var held []Table
	used := 0
	for range 20000 {
		if r.IntN(2) == 0 {
			n := r.IntN(9)
			if b, ok := p.Allocate(nil, n); ok {
				held, used = append(held, b), used+n
			} else if n <= 37-used {
				t.Fatalf("Allocate(%d) refused with %d free", n, 37-used)
			}
		} else if len(held) > 0 {
			i := r.IntN(len(held))
			p.Free(held[i])
			used -= len(held[i])
			held = slices.Delete(held, i, i+1)
		}
		if p.NumFree() != 37-used {
			t.Fatalf("NumFree = %d, want %d", p.NumFree(), 37-used)
		}
	}
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	seen := map[BlockID]bool{}
	for _, bs := range held {
		for _, b := range bs {
			if seen[b] {
				t.Fatalf("block %d was handed out twice", b)
			}
			seen[b] = true
		}
	}
}

func TestCheckFindsFaults(t *testing.T) {
	for name, spoil := range map[string]func(p *Pool, held Table){
		"a lost block":                 func(p *Pool, held Table) { p.blocks[held[0]].refs = 0 },
		"a listed block that is held":  func(p *Pool, _ Table) { p.blocks[p.FreeList()[0]].refs = 1 },
		"a wrong count":                func(p *Pool, _ Table) { p.numFree++ },
		"a broken link":                func(p *Pool, _ Table) { l := p.FreeList(); p.blocks[l[1]].prev = l[2] },
		"a block that is listed twice": func(p *Pool, _ Table) { l := p.FreeList(); p.blocks[l[2]].next = l[0] },
		"a broken ring":                func(p *Pool, held Table) { p.blocks[held[0]].newer = held[1] },
		"a hash without its block":     func(p *Pool, held Table) { p.blocks[held[1]].content = content{} },
		"a block without its hash":     func(p *Pool, held Table) { delete(p.byHash, p.blocks[held[1]].hash) },
		"a block without predecessor":  func(p *Pool, held Table) { p.forget(held[0]) },
	} {
		p := small(6)
		held := allocate(t, p, 2)
		p.Register(&Chain{}, count(8), held, 0, 2)
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		spoil(p, held)
		if err := p.Check(); err == nil {
			t.Errorf("Check accepted %s", name)
		}
	}
}

func TestTableSlot(t *testing.T) {
	tab := Table{7, 2}
	for pos, want := range map[int]uint32{0: 112, 15: 127, 16: 32, 31: 47} {
		if got := tab.Slot(pos); got != want {
			t.Errorf("Slot(%d) = %d, want %d", pos, got, want)
		}
	}
	if tab.Capacity() != 32 || NumBlocksFor(0) != 0 || NumBlocksFor(16) != 1 || NumBlocksFor(17) != 2 {
		t.Error("block arithmetic is off")
	}
	if p := small(1); p.NumBlocksFor(0) != 0 || p.NumBlocksFor(4) != 1 || p.NumBlocksFor(5) != 2 {
		t.Error("block arithmetic of a pool of another size is off")
	}
}
