package sched

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pagelight/pagelight/internal/kvcache"
)

// sim plays the engine and the device around a scheduler, and checks everything that must hold after each operation. The
// device's memory holds, for each slot, a print of all that K and V there depend on: the salt and all tokens up to that
// one. So a block that is shared wrongly, reused too early or found without having been computed shows at once.
type sim struct {
	t     testing.TB
	cfg   Config
	pool  *kvcache.Pool
	s     *Scheduler
	mem   []uint64 // [blocks, block size]
	seqs  map[*Sequence]*client
	live  []*client // in the order of Add
	steps int
	peak  int // largest MaxTokens so far
	next  int // for names

	finished, cached int
	bursts, short    int // steps computed ahead; bursts that the pool had no room for
	queued           int // bursts while somebody waited
}

// client is what the simulation knows about a sequence.
type client struct {
	*Sequence
	prompt  int
	prints  []uint64 // [tokens]
	nextRow int      // position of the next row of logits
	at      int      // position of the next token to compute, as long as it runs
	total   int      // tokens computed in all
	due     int      // step by which it must be done
	passed  int      // later arrivals that were admitted while it waited
}

const simBlock = 4

// push extends the prints by one token. The hash is fixed, so that a failure can be repeated.
func (c *client) push(id int32) {
	before := uint64(len(c.Salt)) // the salts of this test differ in length
	if n := len(c.prints); n > 0 {
		before = c.prints[n-1]
	}
	h := fnv.New64a()
	_ = binary.Write(h, binary.LittleEndian, [2]uint64{before, uint64(id)}) // a hash takes everything
	c.prints = append(c.prints, h.Sum64())
}

func newSim(t testing.TB, blocks int, cfg Config) *sim {
	pool := kvcache.NewPool(kvcache.Config{NumBlocks: blocks, BlockSize: simBlock})
	return &sim{
		t: t, cfg: cfg, pool: pool, s: New(cfg, pool),
		mem: make([]uint64, blocks*simBlock), seqs: map[*Sequence]*client{},
	}
}

// submit adds a sequence, which may be refused.
func (m *sim) submit(prompt []int32, maxNew, logitsFrom, priority int, salt string) {
	q := &Sequence{
		ID: fmt.Sprint(m.next), Tokens: prompt, MaxTokens: len(prompt) + maxNew, LogitsFrom: min(logitsFrom, len(prompt)-1),
		Priority: priority, Salt: salt,
	}
	full := m.cfg.MaxWaiting > 0 && len(m.s.Waiting()) >= m.cfg.MaxWaiting+m.cfg.MaxSeqs-len(m.s.Running())
	large := q.MaxTokens > len(m.mem)
	err := m.s.Add(q)
	if size := (*SizeError)(nil); large != errors.As(err, &size) || !large && full != errors.Is(err, ErrQueueFull) {
		m.t.Fatalf("Add of %d tokens to %d slots, queue full %v: %v", q.MaxTokens, len(m.mem), full, err)
	}
	if err != nil {
		return
	}
	m.next++
	c := &client{Sequence: q, prompt: len(prompt), nextRow: q.LogitsFrom}
	for _, id := range prompt {
		c.push(id)
	}
	m.peak = max(m.peak, q.MaxTokens)
	c.due = m.steps + q.MaxTokens
	for _, x := range m.live {
		c.due += x.MaxTokens
	}
	if m.cfg.Policy == PolicyPriority {
		// Later ones may be larger than any so far, but none is larger than the pool.
		c.due = m.steps + (3*(len(m.live)+m.s.cfg.MaxOvertakes)+1)*len(m.mem)
	}
	m.seqs[q], m.live = c, append(m.live, c)
	m.check()
}

// remove takes a sequence out: it is done, or was aborted.
func (m *sim) remove(c *client) {
	m.s.Remove(c.Sequence)
	if len(c.Table) > 0 {
		m.t.Fatalf("%s holds %v after Remove", c.ID, c.Table)
	}
	delete(m.seqs, c.Sequence)
	m.live = slices.DeleteFunc(m.live, func(x *client) bool { return x == c })
	m.check()
}

func (m *sim) slot(c *client, pos int) int {
	return int(c.Table[pos/simBlock])*simBlock + pos%simBlock
}

// step runs one step. One that fails leaves rubbish where it would have written, and ends its sequences. abort is a live
// sequence that is taken out while the step runs, or -1.
func (m *sim) step(fail bool, abort int) {
	p := m.s.Schedule()
	m.steps++
	m.checkPlan(p)
	m.check()
	for _, c := range p.Chunks {
		m.compute(m.seqs[c.Seq], c, fail)
	}
	if fail {
		for _, c := range slices.Clone(p.Chunks) {
			m.remove(m.seqs[c.Seq])
		}
		return
	}
	if abort >= 0 {
		m.remove(m.live[abort])
	}
	m.s.Done(p)
	m.check()
	for _, c := range slices.Clone(p.Chunks) {
		if q := m.seqs[c.Seq]; q != nil && q.at == len(q.Tokens) {
			m.answer(q)
		}
	}
}

// answer gives a sequence the token that follows its last, and takes it out if it is full.
func (m *sim) answer(q *client) {
	id := q.nextToken()
	q.Tokens = append(q.Tokens, id)
	q.push(id)
	if len(q.Tokens) < q.MaxTokens {
		return
	}
	if computed := q.total + q.NumCached; q.Preemptions == 0 && computed != len(q.Tokens)-1 {
		m.t.Fatalf("%s computed %d tokens and found %d of %d", q.ID, q.total, q.NumCached, len(q.Tokens)-1)
	}
	if m.steps > q.due {
		m.t.Fatalf("%s was done in step %d, promised for %d", q.ID, m.steps, q.due)
	}
	m.finished++
	m.remove(q)
}

func (c *client) nextToken() int32 { return int32(c.prints[len(c.prints)-1] % 3) }

// checkPlan looks at a plan as a whole.
func (m *sim) checkPlan(p *Plan) {
	for _, q := range p.Preempted {
		if c := m.seqs[q]; len(q.Table) > 0 || !slices.Contains(m.s.Waiting(), q) || c == nil {
			m.t.Fatalf("%s was preempted and holds %v", q.ID, q.Table)
		}
	}
	if m.cfg.Policy != PolicyPriority && !slices.IsSortedFunc(m.s.Waiting(), func(a, b *Sequence) int { return int(a.arrival) - int(b.arrival) }) {
		m.t.Fatal("the queue is not in the order of arrival")
	}
	if len(p.Preempted) > 0 && len(p.Admitted) > 0 {
		m.t.Fatal("a step preempts and admits")
	}
	for _, a := range p.Admitted {
		c := m.seqs[a.Seq]
		c.at = a.Cached
		m.cached += a.Cached
		if a.Resumed != (a.Seq.Preemptions > 0) || !a.Resumed && a.Cached != a.Seq.NumCached || a.Cached%simBlock != 0 || a.Cached > c.nextRow {
			m.t.Fatalf("%s: admission %+v with rows wanted from %d", c.ID, a, c.nextRow)
		}
	}
	for _, a := range p.Admitted {
		for _, x := range m.live {
			if !a.Resumed && x.arrival < a.Seq.arrival && x.state == waiting {
				if x.passed++; m.cfg.Policy != PolicyPriority || x.passed > m.cfg.MaxOvertakes {
					m.t.Fatalf("%s was overtaken %d times", x.ID, x.passed)
				}
			}
		}
	}
	tokens, rows, planned := 0, 0, map[*Sequence]bool{}
	for _, c := range p.Chunks {
		tokens, rows = tokens+len(c.Tokens), rows+c.Logits
		planned[c.Seq] = true
		if len(c.Tokens) == 0 || m.cfg.LongPrefillThreshold > 0 && len(c.Tokens) > m.cfg.LongPrefillThreshold {
			m.t.Fatalf("%s gets a chunk of %d tokens", c.Seq.ID, len(c.Tokens))
		}
	}
	if tokens != p.NumTokens || rows != p.NumLogits || tokens > m.cfg.MaxBatchedTokens || rows > m.cfg.MaxLogits || len(planned) != len(p.Chunks) {
		m.t.Fatalf("%d tokens, %d rows, %d sequences in plan %+v", tokens, rows, len(planned), p)
	}
	for _, q := range m.s.Running() {
		if !planned[q] {
			m.t.Fatalf("%s runs and gets nothing", q.ID)
		}
	}
	if len(p.Chunks) != len(m.s.Running()) || len(p.Chunks) == 0 && len(m.live) > 0 {
		m.t.Fatalf("%d chunks, %d sequences run, %d in all", len(p.Chunks), len(m.s.Running()), len(m.live))
	}
}

// compute does what the device does for a chunk: it reads what comes before it and writes its own.
func (m *sim) compute(q *client, c Chunk, fail bool) {
	if c.Start != q.at || !slices.Equal(c.Tokens, q.Tokens[c.Start:c.Start+len(c.Tokens)]) {
		m.t.Fatalf("%s: chunk at %d, want %d", q.ID, c.Start, q.at)
	}
	for pos := range c.Start {
		if m.mem[m.slot(q, pos)] != q.prints[pos] {
			m.t.Fatalf("%s reads at position %d, block %d, what is not its own", q.ID, pos, q.Table[pos/simBlock])
		}
	}
	for i := range c.Tokens {
		pos := c.Start + i
		if refs := m.pool.Refs(q.Table[pos/simBlock]); refs != 1 {
			m.t.Fatalf("%s writes to block %d, which %d tables hold", q.ID, q.Table[pos/simBlock], refs)
		}
		m.mem[m.slot(q, pos)] = q.prints[pos]
		if fail {
			m.mem[m.slot(q, pos)] = 0
		}
	}
	q.at += len(c.Tokens)
	q.total += len(c.Tokens)
	if want := max(0, q.at-q.nextRow); c.Logits != want {
		m.t.Fatalf("%s: %d rows of logits for %d+%d, want %d", q.ID, c.Logits, c.Start, len(c.Tokens), want)
	}
	q.nextRow = max(q.nextRow, q.at)
}

func (m *sim) check() {
	if err := m.s.Check(); err != nil {
		m.t.Fatal(err)
	}
	if len(m.s.Running())+len(m.s.Waiting()) != len(m.live) {
		m.t.Fatalf("%d run, %d wait, %d in all", len(m.s.Running()), len(m.s.Waiting()), len(m.live))
	}
}

// play reads a configuration and then operations from bytes, and in the end lets everything finish.
func play(t testing.TB, data []byte) *sim {
	next := func(n int) int { // 0 to n-1
		if len(data) == 0 {
			return 0
		}
		v := int(data[0]) % n
		data = data[1:]
		return v
	}
	cfg := Config{MaxSeqs: 1 + next(6)}
	cfg.MaxBatchedTokens = cfg.MaxSeqs + next(20)
	cfg.MaxLogits = cfg.MaxSeqs + next(6)
	cfg.MaxWaiting = next(8)
	cfg.LongPrefillThreshold = next(9)
	if next(2) == 1 {
		cfg.Policy, cfg.MaxOvertakes = PolicyPriority, 1+next(4)
	}
	m := newSim(t, 1+next(20), cfg)
	for len(data) > 0 {
		switch op := next(32); {
		case op < 10:
			// Beginnings of a common text, so that they are found; a few go on alone.
			prompt := make([]int32, 1+next(30))
			salt := []string{"", "", "", "x"}[next(4)]
			for i := range prompt {
				prompt[i] = int32(i % 7)
			}
			if next(3) == 0 {
				prompt[len(prompt)/2] = int32(100 + next(4))
			}
			from := len(prompt)
			if next(4) == 0 {
				from = next(30)
			}
			m.submit(prompt, 1+next(24), from, next(4), salt)
		case op < 12 && len(m.live) > 0:
			m.remove(m.live[next(len(m.live))])
		case op == 12:
			m.step(true, -1)
		case op == 14 && len(m.live) > 0:
			m.step(false, next(len(m.live)))
		case op > 24:
			m.burst(1+next(12), next)
		case op == 13:
			if held := m.pool.NumFree() < m.pool.NumBlocks(); m.pool.Reset() == held {
				t.Fatalf("Reset with blocks held %v did the wrong thing", held)
			} else if !held {
				clear(m.mem)
			}
		default:
			m.step(false, -1)
		}
	}
	for range 100_000 {
		if len(m.live) == 0 {
			break
		}
		m.step(false, -1)
	}
	if len(m.live) > 0 || m.pool.NumFree() != m.pool.NumBlocks() {
		t.Fatalf("%d sequences are not done, %d of %d blocks are free", len(m.live), m.pool.NumFree(), m.pool.NumBlocks())
	}
	if st := m.pool.Stats(); int(st.Hits) > m.cached {
		t.Fatalf("%d tokens were counted as hits, %d were found", st.Hits, m.cached)
	}
	return m
}

func TestRandomSchedules(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	var finished, hits, evicted, preempted, again, ahead, short, queued int
	for range 500 {
		data := make([]byte, 200+r.IntN(600))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		m := play(t, data)
		finished += m.finished
		hits += int(m.pool.Stats().Hits)
		evicted += int(m.pool.Stats().Evictions)
		preempted += int(m.s.Stats().Preemptions)
		again += int(m.s.Stats().Recomputed)
		ahead, short, queued = ahead+m.bursts, short+m.short, queued+m.queued
	}
	t.Logf("%d sequences done, %d tokens found, %d blocks evicted, %d preemptions, %d tokens computed again, %d steps ahead, no room ahead %d times, %d times with a queue",
		finished, hits, evicted, preempted, again, ahead, short, queued)
	if finished < 3000 || hits < 5000 || evicted < 1000 || preempted < 500 || again < 500 || ahead < 1000 || short < 100 || queued < 1000 {
		t.Error("the schedules do not reach enough")
	}
}

func FuzzSched(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 4096 {
			play(t, data)
		}
	})
}
