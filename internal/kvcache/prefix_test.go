package kvcache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// count is the tokens 0 to n-1.
func count(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(i)
	}
	return ids
}

// fill allocates and registers all full blocks of tokens.
func fill(t *testing.T, p *Pool, salt string, tokens []int32) Table {
	t.Helper()
	table := allocate(t, p, p.NumBlocksFor(len(tokens)))
	p.Register(&Chain{Salt: salt}, tokens, table, 0, len(tokens)/p.size)
	return table
}

func TestLookupFindsWholeBlocksButNeverTheLastToken(t *testing.T) {
	p := small(8)
	fill(t, p, "", count(14)) // [0 1 2], 2 tokens more in 3
	for _, c := range []struct {
		tokens, most int
		want         Table
	}{
		{14, 14, Table{0, 1, 2}},
		{13, 13, Table{0, 1, 2}},
		{12, 12, Table{0, 1}}, // the last token is computed, and with it its block
		{11, 11, Table{0, 1}},
		{5, 5, Table{0}},
		{4, 4, nil},
		{1, 1, nil},
		{14, 11, Table{0, 1}},
		{14, 3, nil},
		{14, 0, nil},
	} {
		if got := p.Lookup(nil, &Chain{}, count(c.tokens), c.most); !slices.Equal(got, c.want) {
			t.Errorf("Lookup of %d tokens, at most %d = %v, want %v", c.tokens, c.most, got, c.want)
		}
	}
	other := count(14)
	other[5] = 77
	if got := p.Lookup(nil, &Chain{}, other, 14); !slices.Equal(got, Table{0}) {
		t.Errorf("Lookup of tokens that differ in the second block = %v, want [0]", got)
	}
	// The same 4 tokens after another beginning are other content.
	if got := p.Lookup(nil, &Chain{}, count(14)[4:], 14); got != nil {
		t.Errorf("Lookup of a middle part = %v, want none", got)
	}
}

func TestSaltNamespaceAndBlockSizeSeparate(t *testing.T) {
	p := small(8)
	a, b := fill(t, p, "alice", count(8)), fill(t, p, "", count(8))
	for salt, want := range map[string]Table{"alice": a, "": b, "bob": nil} {
		if got := p.Lookup(nil, &Chain{Salt: salt}, count(9), 9); !slices.Equal(got, want) {
			t.Errorf("Lookup with salt %q = %v, want %v", salt, got, want)
		}
	}
	seen := map[digest]string{}
	for _, c := range []struct {
		namespace, salt string
		size            int
	}{{"", "", 4}, {"m", "", 4}, {"", "m", 4}, {"ab", "c", 4}, {"a", "bc", 4}, {"", "", 2}} {
		h := newHasher(c.namespace, c.size)
		d := h.extend(&Chain{Salt: c.salt}, count(8), 0)
		if old, ok := seen[d]; ok {
			t.Errorf("%+v and %s have the same hash", c, old)
		}
		seen[d] = fmt.Sprintf("%+v", c)
	}
}

// The wanted hash was computed by Python's hashlib from the formula in hash.go.
func TestHashIsTheSameEverywhere(t *testing.T) {
	h := newHasher("ernie", 16)
	got := fmt.Sprintf("%x", h.extend(&Chain{Salt: "s"}, count(32), 1))
	if want := "b805b693203fb4c102b4bc291b6b8106b88faa65dca2ca23c5c1adbc6f36044b"; got != want {
		t.Errorf("hash = %s, want %s", got, want)
	}
}

func TestFreedBlocksAreFoundUntilTheyAreReused(t *testing.T) {
	p := small(5)
	a := fill(t, p, "", count(12)) // [0 1 2]
	p.Free(a)
	wantFree(t, p, 3, 4, 2, 1, 0)
	found := p.Lookup(nil, &Chain{}, count(13), 13)
	if !slices.Equal(found, a) || p.NumFreeOf(found) != 3 {
		t.Fatalf("Lookup = %v with %d free, want %v, all free", found, p.NumFreeOf(found), a)
	}
	p.Hold(found[:2])
	wantFree(t, p, 3, 4, 2)
	if n := p.NumFreeOf(found); n != 1 {
		t.Errorf("NumFreeOf = %d, want 1", n)
	}
	b := allocate(t, p, 3)
	if !slices.Equal(b, Table{3, 4, 2}) {
		t.Errorf("Allocate(3) = %v, want [3 4 2]", b)
	}
	if got := p.Lookup(nil, &Chain{}, count(13), 13); !slices.Equal(got, Table{0, 1}) {
		t.Errorf("Lookup after block 2 was reused = %v, want [0 1]", got)
	}
	p.Hold(found[:1])
	p.Free(found[:2])
	if p.Refs(0) != 1 || p.Refs(1) != 0 {
		t.Errorf("references = %d, %d; want 1, 0", p.Refs(0), p.Refs(1))
	}
	wantFree(t, p, 1)
}

func TestDuplicatesAreKeptAndTheOldestIsFound(t *testing.T) {
	p := small(6)
	a, b, c := fill(t, p, "", count(8)), fill(t, p, "", count(8)), fill(t, p, "", count(8))
	lookup := func(want Table) {
		t.Helper()
		if got := p.Lookup(nil, &Chain{}, count(9), 9); !slices.Equal(got, want) {
			t.Errorf("Lookup = %v, want %v", got, want)
		}
		if err := p.Check(); err != nil {
			t.Error(err)
		}
	}
	lookup(a)
	p.Free(a)
	allocate(t, p, 1) // takes a's tail: its twin is found behind a's head
	lookup(Table{0, 3})
	allocate(t, p, 1)
	lookup(b)
	p.Free(c)
	allocate(t, p, 2) // the newest goes
	lookup(b)
	p.Free(b)
	allocate(t, p, 2)
	lookup(nil)
	if s := p.Stats(); s.NumCached != 0 || s.Evictions != 6 {
		t.Errorf("stats = %+v", s)
	}
}

func TestRegisterStepByStepContinuesTheChain(t *testing.T) {
	p := small(4)
	c, tokens, table := &Chain{}, count(6), allocate(t, p, 4)
	p.Register(c, tokens, table, 0, 1)
	tokens = append(tokens, count(16)[6:]...)
	p.Register(c, tokens, table, 1, 1)
	p.Register(c, tokens, table, 1, 4)
	if got := p.Lookup(nil, &Chain{}, count(17), 17); !slices.Equal(got, table) {
		t.Errorf("Lookup = %v, want %v", got, table)
	}
	defer func() {
		if recover() == nil {
			t.Error("registering a block again did not panic")
		}
	}()
	p.Register(c, tokens, table, 3, 4)
}

func TestResetForgetsOnlyWhenNothingIsHeld(t *testing.T) {
	p := small(4)
	a := fill(t, p, "", count(8))
	if p.Reset() {
		t.Error("Reset with held blocks succeeded")
	}
	if got := p.Lookup(nil, &Chain{}, count(9), 9); !slices.Equal(got, a) {
		t.Errorf("after a refused Reset: Lookup = %v, want %v", got, a)
	}
	p.Free(a)
	if !p.Reset() {
		t.Error("Reset with nothing held was refused")
	}
	if got := p.Lookup(nil, &Chain{}, count(9), 9); got != nil || p.Stats().NumCached != 0 {
		t.Errorf("after Reset: Lookup = %v, stats %+v", got, p.Stats())
	}
	if err := p.Check(); err != nil {
		t.Error(err)
	}
}

func TestWithoutPrefixCacheNothingIsFound(t *testing.T) {
	p := NewPool(Config{NumBlocks: 4, BlockSize: 4, NoPrefixCache: true})
	a := fill(t, p, "", count(8))
	p.Count(9, 0)
	p.Free(a)
	if got := p.Lookup(nil, &Chain{}, count(9), 9); got != nil || p.Stats().NumCached != 0 || p.Stats().Queries != 0 {
		t.Errorf("Lookup = %v, stats %+v", got, p.Stats())
	}
	wantFree(t, p, 0, 1, 2, 3)
}

// TestCollisionsShareNothing replaces SHA-256 by hashes with few values, so that most candidates are wrong. What is found
// must still be right: the model remembers what each block was registered with.
func TestCollisionsShareNothing(t *testing.T) {
	for _, values := range []int{1, 2, 5} {
		p := small(24)
		good := p.hasher.sum
		p.hasher.sum = func(b []byte) digest { return digest{good(b)[0] % byte(values)} }
		r := rand.New(rand.NewPCG(3, uint64(values)))
		holds := map[BlockID]string{} // salt and all tokens up to the block's end
		var live []Table
		hits := 0
		for range 4000 {
			if len(live) > 0 && r.IntN(3) == 0 {
				i := r.IntN(len(live))
				p.Free(live[i])
				live = slices.Delete(live, i, i+1)
				continue
			}
			chain := &Chain{Salt: []string{"", "x"}[r.IntN(2)]}
			tokens := make([]int32, 1+r.IntN(16))
			for i := range tokens {
				tokens[i] = int32(r.IntN(8) / 7) // mostly 0, so that beginnings repeat
			}
			content := func(i int) string { return fmt.Sprint(chain.Salt, tokens[:(i+1)*p.size]) }
			found := p.Lookup(nil, chain, tokens, len(tokens))
			for i, b := range found {
				if holds[b] != content(i) {
					t.Fatalf("block %d holds %s, found for %s", b, holds[b], content(i))
				}
			}
			lack := p.NumBlocksFor(len(tokens)) - len(found)
			if lack+p.NumFreeOf(found) > p.NumFree() {
				continue
			}
			hits += len(found)
			p.Hold(found)
			table, _ := p.Allocate(found, lack)
			full := len(tokens) / p.size
			p.Register(chain, tokens, table, len(found), full)
			for i := len(found); i < full; i++ {
				holds[table[i]] = content(i)
			}
			live = append(live, table)
			if err := p.Check(); err != nil {
				t.Fatal(err)
			}
		}
		if hits < 500 {
			t.Errorf("%d values: only %d blocks were found", values, hits)
		}
	}
}

func BenchmarkLookup1024Blocks(b *testing.B) {
	p := NewPool(Config{NumBlocks: 1024})
	tokens := count(1024*BlockSize + 1)
	table, _ := p.Allocate(nil, 1024)
	chain := &Chain{}
	p.Register(chain, tokens, table, 0, 1024)
	var found Table
	b.ReportAllocs()
	for b.Loop() {
		found = p.Lookup(found[:0], chain, tokens, len(tokens))
	}
	if len(found) != 1024 {
		b.Fatal(len(found))
	}
}

func BenchmarkHashBlock(b *testing.B) {
	h := newHasher("", BlockSize)
	tokens, chain := count(BlockSize), &Chain{}
	h.extend(chain, tokens, 0)
	b.ReportAllocs()
	for b.Loop() {
		chain.hashes = chain.hashes[:1]
		h.extend(chain, tokens, 0)
	}
}
