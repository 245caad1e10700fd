package kvcache

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestPoolHandsOutOldestFreedFirstAndTailBeforeHead(t *testing.T) {
	p := NewPool(4)
	a, ok := p.Allocate(3)
	if !ok || !slices.Equal(a, []BlockID{0, 1, 2}) {
		t.Fatalf("Allocate(3) = %v, %v; want [0 1 2], true", a, ok)
	}
	if _, ok := p.Allocate(2); ok {
		t.Fatal("Allocate(2) with one free block succeeded")
	}
	if p.NumFree() != 1 {
		t.Fatalf("NumFree after a refused Allocate = %d, want 1", p.NumFree())
	}
	p.Free(a)
	got, _ := p.Allocate(4)
	if want := []BlockID{3, 2, 1, 0}; !slices.Equal(got, want) {
		t.Errorf("after freeing [0 1 2]: Allocate(4) = %v, want %v", got, want)
	}
}

func TestPoolPanicsOnDoubleFree(t *testing.T) {
	p := NewPool(1)
	a, _ := p.Allocate(1)
	p.Free(a)
	defer func() {
		if recover() == nil {
			t.Error("freeing a free block did not panic")
		}
	}()
	p.Free(a)
}

func TestPoolStaysConsistentUnderRandomUse(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	p := NewPool(37)
	var held [][]BlockID
	used := 0
	for range 20000 {
		if r.IntN(2) == 0 {
			n := r.IntN(9)
			if b, ok := p.Allocate(n); ok {
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

func TestCheckFindsALostBlock(t *testing.T) {
	p := NewPool(3)
	a, _ := p.Allocate(1)
	p.refs[a[0]] = 0
	if p.Check() == nil {
		t.Error("Check accepted a block that is neither free nor held")
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
}
