package cpu

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pagelight/pagelight/internal/ref"
)

// The sizes of pieces of work, in multiply-adds or what takes as long.
const (
	pieceCost  = 1 << 16 // of a piece, about 50 microseconds: after each, a worker takes another or stops
	inlineCost = 1 << 15 // less than this is not worth waking another goroutine
)

// yieldEvery is how long the pool computes before it calls yield.
const yieldEvery = 10 * time.Millisecond

// pool runs the phases of kernels on several goroutines, of which the caller's is one. It allocates nothing once its
// scratch has grown.
type pool struct {
	scratch []ref.Scratch // one per worker; the caller is worker 0
	wide    []float64     // inputs of matmul in float64, shared by the workers
	views   views         // of the command under way
	stop    atomic.Bool   // ends the work early

	yield   func() // nil when nobody needs it
	yielded time.Time

	start chan struct{} // one element wakes one worker
	ended sync.WaitGroup

	// The phase under way, and its next item that nobody has taken.
	phase *phase
	items int
	piece int
	next  atomic.Int64

	mu    sync.Mutex
	fault error // of the phase under way
}

// newPool starts workers-1 goroutines.
func newPool(workers int, yield func()) *pool {
	p := &pool{scratch: make([]ref.Scratch, workers), yield: yield, yielded: time.Now(), start: make(chan struct{}, workers)}
	for i := range workers - 1 {
		go func() {
			for range p.start {
				p.work(i + 1)
				p.ended.Done()
			}
		}()
	}
	return p
}

// close ends the goroutines.
func (p *pool) close() { close(p.start) }

// dispatch runs one command.
func (p *pool) dispatch(bindings []binding, phases []phase) error {
	defer func() {
		p.views, p.phase = views{}, nil
		for i := range phases {
			phases[i].drop()
		}
	}()
	p.views.bind(bindings, p)
	for i := range phases {
		ph := &phases[i]
		p.items = 0
		cost := 0
		p.guard(func() { p.items, cost = ph.prepare(&p.views) })
		if p.views.err != nil {
			return p.views.err
		}
		p.run(ph, max(cost, 1))
		if p.fault != nil {
			err := p.fault
			p.fault = nil
			return err
		}
	}
	return nil
}

// run shares the items of a phase among the workers. cost is that of an item.
func (p *pool) run(ph *phase, cost int) {
	p.phase, p.piece = ph, max(1, pieceCost/cost)
	p.next.Store(0)
	pieces := (p.items + p.piece - 1) / p.piece
	others := min(len(p.scratch), pieces) - 1
	if p.items*cost < inlineCost {
		others = 0
	}
	for range others {
		p.ended.Add(1)
		p.start <- struct{}{}
	}
	p.work(0)
	p.ended.Wait()
}

// work takes pieces of the phase until there are none.
func (p *pool) work(worker int) {
	p.guard(func() {
		for !p.stop.Load() {
			hi := int(p.next.Add(int64(p.piece)))
			lo := hi - p.piece
			if lo >= p.items {
				return
			}
			p.phase.run(&p.scratch[worker], lo, min(hi, p.items))
			if worker == 0 && p.yield != nil && time.Since(p.yielded) > yieldEvery {
				p.yield()
				p.yielded = time.Now()
			}
		}
	})
}

// guard turns an index out of range, which is what wrong numbers in a buffer lead to, into the fault of the phase. What
// else panics is a fault of ours.
func (p *pool) guard(f func()) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case runtime.Error:
			p.next.Add(int64(p.items) + 1) // there is no point in going on
			p.mu.Lock()
			defer p.mu.Unlock()
			p.fault = fmt.Errorf("what the buffers hold does not fit: %w", r)
		default:
			panic(r)
		}
	}()
	f()
}
