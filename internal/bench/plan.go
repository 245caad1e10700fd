package bench

import (
	"fmt"
	"slices"

	"github.com/pagelight/pagelight/engine"
)

// test is one to be done.
type test struct {
	Test
	tokens int // of a context
}

// list is all tests of the options, in the order in which they are done.
func (o *Options) list() (list []test) {
	for _, p := range o.prompts() {
		list = append(list, test{Test{Name: fmt.Sprintf("pp%d", p), Kind: KindPrefill, Prompt: p, Batch: 1}, p + 1})
	}
	for _, d := range o.depths() {
		for _, g := range o.gens() {
			name := fmt.Sprintf("tg%d", g)
			if d > 0 {
				name += fmt.Sprintf(" @ d%d", d)
			}
			list = append(list, test{Test{Name: name, Kind: KindDecode, Gen: g, Depth: d, Batch: 1}, max(d, 1) + g + 1})
		}
	}
	for _, b := range o.batches() {
		name := fmt.Sprintf("b%d (pp%d+tg%d)", b, BatchPrompt, BatchGen)
		list = append(list, test{Test{Name: name, Kind: KindBatch, Prompt: BatchPrompt, Gen: BatchGen, Batch: b}, BatchPrompt + BatchGen + 1})
	}
	return list
}

// ahead is about how many tokens the first of n answers has when the last one begins, at the most: as many as there are steps until
// then. A step of so many tokens computes the prompts; half of it at the least, for answers that have begun take one token each.
func ahead(n, stepTokens int) int {
	return min(2*n, 2*n*BatchPrompt/max(1, stepTokens)+1)
}

// room is what an engine has for tests.
type room struct {
	length     int // tokens of a context
	seqs       int // answers at once
	blocks     int // of the KV cache
	blockSize  int // tokens
	stepTokens int
	why        string // what bounds length and seqs: "this engine has", "the memory budget holds"
}

// lacks says what a test needs that there is too little of, nil where there is room for it.
func (r *room) lacks(t *test) *LeftOut {
	tokens := t.tokens
	if t.Kind == KindBatch {
		tokens = min(tokens+ahead(t.Batch, r.stepTokens), max(tokens, r.length))
	}
	blocks := t.Batch * ((tokens + r.blockSize - 1) / r.blockSize)
	switch {
	case t.tokens > r.length:
		return &LeftOut{t.Name, "context", t.tokens, r.length, fmt.Sprintf("it needs a context of %d tokens, %s %d", t.tokens, r.why, r.length)}
	case t.Batch > r.seqs:
		return &LeftOut{t.Name, "answers", t.Batch, r.seqs, fmt.Sprintf("it needs %d answers at once, %s %d", t.Batch, r.why, r.seqs)}
	case blocks > r.blocks:
		return &LeftOut{t.Name, "blocks", blocks, r.blocks, fmt.Sprintf("it needs a KV cache of %d blocks, the memory budget holds %d", blocks, r.blocks)}
	}
	return nil
}

// plan lists the tests that there is room for, and notes those that there is none for.
func (m *measurement) plan(info engine.Info) (list []test) {
	r := m.room
	r.length, r.blocks, r.blockSize, r.stepTokens = info.MaxModelLen, info.NumBlocks, info.BlockSize, m.eng.MaxBatchedTokens()
	for _, t := range m.o.list() {
		if lacks := r.lacks(&t); lacks != nil {
			m.leaveOut(*lacks)
		} else {
			list = append(list, t)
		}
	}
	return list
}

func (m *measurement) leaveOut(l LeftOut) {
	m.run.LeftOut = append(m.run.LeftOut, l)
	m.run.Notes = append(m.run.Notes, l.Name+" left out: "+l.Reason)
}

// Configure gives cfg, which has its device and its source, what the tests need of an engine: room for their contexts and answers, every
// prompt computed anew, and an observer. What cfg says of lengths and numbers already stays. Where memory does not hold all tests, it
// is that of as many as possible; Run says which are left out, and why.
func (b *Bench) Configure(cfg engine.Config) engine.Config {
	length, seqs := b.o.needs()
	anyLength := cfg.MaxModelLen == 0
	if anyLength {
		cfg.MaxModelLen = min(length, cfg.Source.Config().MaxPositions)
	}
	counts := []int{cfg.MaxSeqs}
	if cfg.MaxSeqs == 0 {
		counts = append(b.o.batches(), seqs, 1)
		if most := cfg.MaxBatchedTokens; most > 0 { // a step has a token of each answer
			counts = append(counts, most)
			counts = slices.DeleteFunc(counts, func(n int) bool { return n > min(most, seqs) })
		}
		slices.Sort(counts)
		slices.Reverse(counts)
		counts = slices.Compact(counts)
	}
	cfg.MaxSeqs, cfg.NoPrefixCache, cfg.Observer = counts[0], true, &b.past
	b.room = room{seqs: cfg.MaxSeqs, why: "this engine has"}
	best, most := cfg, -1
	best.MaxSeqs = counts[len(counts)-1] // if the model does not fit at all, that is the least that it needs
	for _, n := range counts {
		try := cfg
		try.MaxSeqs = n
		p, ok := fits(&try, anyLength)
		if !ok {
			continue
		}
		r := room{try.MaxModelLen, n, p.NumBlocks, p.BlockSize, max(64, try.MaxBatchedTokens), "the memory budget holds"}
		if tests := b.o.roomFor(&r); tests > most {
			best, most = try, tests
			if n < counts[0] || try.MaxModelLen < cfg.MaxModelLen {
				b.room = r
			}
		}
	}
	return best
}

// fits plans the memory of cfg, with a shorter context where it may be shorter and does not fit otherwise.
func fits(cfg *engine.Config, shorter bool) (p engine.MemoryPlan, ok bool) {
	info, limits := cfg.Device.Info(), cfg.Device.Limits()
	p, err := engine.PlanMemory(*cfg, info, limits)
	if err == nil && p.Fits || !shorter {
		return p, err == nil && p.Fits
	}
	open := *cfg
	open.MaxModelLen = 0
	if p, err = engine.PlanMemory(open, info, limits); err != nil || p.LargestContext == 0 {
		return p, false
	}
	cfg.MaxModelLen = min(cfg.MaxModelLen, p.LargestContext)
	p, err = engine.PlanMemory(*cfg, info, limits)
	return p, err == nil && p.Fits
}

// roomFor counts the tests that there is room for.
func (o *Options) roomFor(r *room) (n int) {
	for _, t := range o.list() {
		if r.lacks(&t) == nil {
			n++
		}
	}
	return n
}
