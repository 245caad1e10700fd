//go:build js && wasm

package webgpujs

import (
	"context"
	"errors"
	"runtime"
	"syscall/js"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
)

// counter adds 5 to every element of a with each step, and copies to any of its read-back buffers.
type counter struct {
	*adder
	step   gpu.Program
	backs  []gpu.Buffer
	copies []gpu.Program
}

func newCounter(t testing.TB, d *Device, backs int) *counter {
	t.Helper()
	c := &counter{adder: newAdder(t, d)}
	n := 4 * int64(len(c.input))
	var err error
	c.step, err = d.NewProgram("step", []gpu.Command{
		{Pipeline: c.pipeline, BindGroup: c.group, Grid: [3]uint32{16, 1, 1}},
		{CopySrc: c.b, CopyDst: c.a, CopySize: n},
	})
	check(t, err)
	for range backs {
		back, err := d.NewBuffer("slot", n, gpu.UsageMapRead|gpu.UsageCopyDst)
		check(t, err)
		p, err := d.NewProgram("copy", []gpu.Command{{CopySrc: c.b, CopyDst: back, CopySize: n}})
		check(t, err)
		c.backs, c.copies = append(c.backs, back), append(c.copies, p)
	}
	return c
}

// fetch submits steps and a copy to slot i and begins to read it.
func (c *counter) fetch(t testing.TB, i, steps int) gpu.Fetch {
	t.Helper()
	programs := make([]gpu.Program, 0, steps+1)
	for range steps {
		programs = append(programs, c.step)
	}
	check(t, c.Submit(append(programs, c.copies[i])...))
	f, err := c.Fetch(c.backs[i], c.backs[i].Size())
	check(t, err)
	return f
}

// verify waits for a fetch, which must show what steps steps have made.
func (c *counter) verify(t testing.TB, f gpu.Fetch, steps int) {
	t.Helper()
	got := make([]uint32, len(c.input))
	check(t, f.Wait(t.Context(), gpu.Bytes(got)))
	for i, v := range c.input {
		if want := v + uint32(5*steps); got[i] != want {
			t.Fatalf("after %d steps element %d is %d, want %d", steps, i, got[i], want)
		}
	}
}

// Three read-backs are under way while the next steps are submitted; each shows what was done before it began.
func TestFetchesInFlight(t *testing.T) {
	const slots, rounds = 3, 40
	c := newCounter(t, open(t), slots)
	var under [slots]gpu.Fetch
	done := 0
	var steps [slots]int
	for round := range rounds + slots {
		i := round % slots
		if under[i] != nil {
			c.verify(t, under[i], steps[i])
			under[i] = nil
		}
		if round < rounds {
			n := 1 + round%8
			done += n
			under[i], steps[i] = c.fetch(t, i, n), done
			if round%5 == 0 {
				runtime.GC()
			}
		}
	}
}

// A fetch does not wait for what was submitted after it.
func TestFetchWaitsForNoMore(t *testing.T) {
	d := open(t)
	c := newCounter(t, d, 1)
	busy := slow(t, c.adder)
	check(t, d.Submit(busy)) // compiled and warm
	check(t, d.Wait(t.Context()))
	for range 3 {
		start := time.Now()
		f := c.fetch(t, 0, 1)
		for range 2 {
			check(t, d.Submit(busy))
		}
		check(t, f.Wait(t.Context(), make([]byte, c.backs[0].Size())))
		fetched := time.Since(start)
		check(t, d.Wait(t.Context()))
		all := time.Since(start)
		t.Logf("fetched after %v, all done after %v", fetched, all)
		if fetched < all/2 {
			return
		}
	}
	t.Error("a fetch takes as long as the work that was submitted after it")
}

func TestFetchOfWhatNoSubmissionWrote(t *testing.T) {
	d := open(t)
	c := newCounter(t, d, 2)
	c.verify(t, c.fetch(t, 0, 2), 2)
	check(t, d.Submit(slow(t, c.adder), c.step))
	f, err := d.Fetch(c.backs[0], 8)
	check(t, err)
	got := make([]uint32, 2)
	check(t, f.Wait(t.Context(), gpu.Bytes(got)))
	if want := []uint32{10, 11}; got[0] != want[0] || got[1] != want[1] {
		t.Errorf("the first words are %d, want %d", got, want)
	}
}

func TestFetchRefused(t *testing.T) {
	d := open(t)
	c := newCounter(t, d, 1)
	for _, size := range []int64{0, -4, c.backs[0].Size() + 4} {
		_, err := d.Fetch(c.backs[0], size)
		wantError(t, err, gpu.ErrInvalid, `"slot"`)
	}
	_, err := d.Fetch(c.a, 4)
	wantError(t, err, gpu.ErrInvalid, `"a"`)
	f := c.fetch(t, 0, 1)
	_, err = d.Fetch(c.backs[0], 4)
	wantError(t, err, gpu.ErrInvalid, `"slot"`, "being read")
	wantError(t, d.Read(t.Context(), c.backs[0], 0, make([]byte, 4)), gpu.ErrInvalid, "being read")
	wantError(t, f.Wait(t.Context(), make([]byte, 4)), gpu.ErrInvalid, "4000")
	c.verify(t, f, 1)
	wantError(t, f.Wait(t.Context(), make([]byte, 4000)), gpu.ErrInvalid, `"slot"`) // a second time
}

// A fetch that is given up, before or after its bytes have come, leaves its buffer usable and the others alone.
func TestFetchCancelled(t *testing.T) {
	d := open(t)
	c := newCounter(t, d, 3)
	busy := slow(t, c.adder)
	done := 0
	for i, patience := range []time.Duration{0, time.Microsecond, 2 * time.Millisecond} {
		check(t, d.Submit(busy))
		first := c.fetch(t, 0, 1)
		second := c.fetch(t, 1, 1)
		done += 2
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := first.Wait(ctx, make([]byte, 4000))
		cancel()
		if err != nil {
			wantError(t, err, context.DeadlineExceeded)
		}
		third := c.fetch(t, 0, 1) // the same buffer at once
		done++
		c.verify(t, second, done-1)
		c.verify(t, third, done)
		if i == 2 {
			break
		}
	}
	// Given up when the bytes are there and nobody has looked.
	late := c.fetch(t, 2, 1)
	check(t, d.Wait(t.Context()))
	time.Sleep(5 * time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantError(t, late.Wait(ctx, make([]byte, 4000)), context.Canceled)
	c.verify(t, c.fetch(t, 2, 0), done+1)
}

func TestFetchOfReleasedBuffer(t *testing.T) {
	d := open(t)
	c := newCounter(t, d, 2)
	check(t, d.Submit(slow(t, c.adder)))
	f := c.fetch(t, 0, 1)
	other := c.fetch(t, 1, 1)
	c.backs[0].Release()
	wantError(t, f.Wait(t.Context(), make([]byte, 4000)), gpu.ErrInvalid, `"slot"`)
	c.verify(t, other, 2)
	again := newCounter(t, d, 1) // which gets the number of the one that was released
	again.verify(t, again.fetch(t, 0, 3), 3)
}

// A fault is told to those who began after it, and to the first of them only.
func TestFaultsComeToLaterFetches(t *testing.T) {
	d := open(t)
	c := newCounter(t, d, 3)
	spare, err := d.NewBuffer("spare", 4000, gpu.UsageCopySrc)
	check(t, err)
	bad, err := d.NewProgram("bad", []gpu.Command{{CopySrc: spare, CopyDst: c.back, CopySize: 4000}})
	check(t, err)
	spare.Release()
	check(t, d.Submit(slow(t, c.adder)))
	before := c.fetch(t, 0, 1)
	check(t, d.Submit(bad))
	after, last := c.fetch(t, 1, 1), c.fetch(t, 2, 1)
	c.verify(t, before, 1)
	wantError(t, after.Wait(t.Context(), make([]byte, 4000)), gpu.ErrInvalid, "spare")
	c.verify(t, last, 3)
	c.verify(t, c.fetch(t, 1, 1), 4)
	// A copy to a buffer that is being read is such a fault.
	f := c.fetch(t, 0, 0)
	check(t, d.Submit(c.copies[0]))
	c.verify(t, f, 4)
	if err := d.Wait(t.Context()); !errors.Is(err, gpu.ErrInvalid) {
		t.Errorf("a copy to a buffer that is being read gives %v", err)
	}
}

func TestFetchOfLostDevice(t *testing.T) {
	d := open(t)
	c := newCounter(t, d, 3)
	check(t, d.Submit(slow(t, c.adder)))
	var under []gpu.Fetch
	for i := range c.backs {
		under = append(under, c.fetch(t, i, 1))
	}
	d.handle.Get("device").Call("destroy")
	<-d.Lost()
	for _, f := range under {
		wantError(t, f.Wait(t.Context(), make([]byte, 4000)), gpu.ErrDeviceLost)
	}
	_, err := d.Fetch(c.backs[0], 4)
	wantError(t, err, gpu.ErrDeviceLost)
	closed := newCounter(t, open(t), 1)
	f := closed.fetch(t, 0, 1)
	closed.Close()
	wantError(t, f.Wait(t.Context(), make([]byte, 4000)), gpu.ErrDeviceLost, "closed")
}

// Submitting leaves nothing on the Go heap and no object in the table of those that Go knows; a read-back leaves what the
// browser's callback itself costs, which is collected. 25 programs is a burst of 8 tokens.
func TestStepsLeaveNothing(t *testing.T) {
	d := open(t)
	c := newCounter(t, d, 3)
	burst := make([]gpu.Program, 0, 26)
	for range 8 {
		burst = append(burst, c.copies[0], c.step, c.copies[1])
	}
	burst = append(burst, c.copies[2])
	measure := func(n int, f func(i int)) (mallocs float64, live int64, values int) {
		var before, after runtime.MemStats
		for i := range 10 {
			f(i)
		}
		check(t, d.Wait(t.Context()))
		held := func() int {
			for range 2 { // finalizers tell JavaScript what is no longer known, and run after the collection
				runtime.GC()
				time.Sleep(2 * time.Millisecond)
			}
			return js.Global().Get("goValues").Invoke().Int()
		}
		values = held()
		runtime.ReadMemStats(&before)
		for i := range n {
			f(i)
		}
		runtime.ReadMemStats(&after)
		mallocs = float64(after.Mallocs-before.Mallocs) / float64(n)
		check(t, d.Wait(t.Context()))
		values = held() - values
		runtime.ReadMemStats(&after)
		return mallocs, int64(after.HeapAlloc) - int64(before.HeapAlloc), values
	}
	const steps = 1000
	mallocs, live, values := measure(steps, func(i int) {
		if i%2 == 0 {
			check(t, d.Submit(burst...))
		} else {
			check(t, d.Submit(burst[:1]...))
		}
	})
	t.Logf("a submission of up to %d programs: %.3f objects; %d bytes and %d values more after %d", len(burst), mallocs, live, values, steps)
	if mallocs > 0.02 {
		t.Errorf("a submission makes %.3f objects", mallocs)
	}
	if live > 16<<10 || values > 4 {
		t.Errorf("%d submissions leave %d bytes and %d values", steps, live, values)
	}

	var under [3]gpu.Fetch
	got := make([]byte, c.back.Size())
	mallocs, live, values = measure(steps, func(i int) {
		slot := i % 3
		if under[slot] != nil {
			check(t, under[slot].Wait(t.Context(), got))
		}
		check(t, d.Submit(c.step, c.copies[slot]))
		var err error
		under[slot], err = d.Fetch(c.backs[slot], c.backs[slot].Size())
		check(t, err)
	})
	t.Logf("a read-back with three in flight: %.2f objects; %d bytes and %d values more after %d", mallocs, live, values, steps)
	if mallocs > 8 {
		t.Errorf("a read-back makes %.2f objects", mallocs)
	}
	if live > 16<<10 || values > 8 {
		t.Errorf("%d read-backs leave %d bytes and %d values", steps, live, values)
	}
}

// A turn lets callbacks come in that are due; a goroutine that only yields does not.
func TestTurn(t *testing.T) {
	open(t)
	came := false
	f := js.FuncOf(func(js.Value, []js.Value) any {
		came = true
		return nil
	})
	defer f.Release()
	js.Global().Get("pagelightGPU").Call("turn", f)
	runtime.Gosched()
	if came {
		t.Fatal("a callback came without a turn")
	}
	Turn()
	if !came {
		t.Error("a turn did not let the callback in")
	}
}
