package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/hub"
)

// newHub is the hub and the cache that the environment describes.
func newHub() (*hub.Hub, error) {
	h, err := hub.FromEnv(os.Getenv)
	if err != nil {
		return nil, usageError{err}
	}
	h.UserAgent = "pagelight/" + version
	return h, nil
}

// hubName reads the name of a model of the hub.
func hubName(model string) (hub.Name, error) {
	n, err := hub.ParseName(model)
	if err != nil {
		return n, usageError{err}
	}
	return n, nil
}

// fetchModel downloads a model of the hub that is not in the cache, before it is opened. Other models are left alone. told,
// which may be nil, hears how far it is.
func (a *app) fetchModel(model string, told func(engine.Progress)) error {
	if !hub.IsName(model) {
		return nil
	}
	n, err := hubName(model)
	if err != nil {
		return err
	}
	h, err := newHub()
	if err != nil {
		return err
	}
	_, err = h.Find(n)
	var missing *hub.NotCachedError
	switch {
	case !errors.As(err, &missing):
		return nil // it is there, or opening says what is wrong
	case h.Offline:
		return modelError{fmt.Errorf("%w (HF_HUB_OFFLINE is set)", err)}
	}
	fmt.Fprintf(a.stderr, "%s is not in the cache; downloading it to %s\n", n, h.Cache)
	_, err = a.download(h, n, hub.PullOptions{}, told)
	if err != nil {
		return modelError{err}
	}
	return nil
}

// download pulls a model and shows how far it is.
func (a *app) download(h *hub.Hub, n hub.Name, o hub.PullOptions, told func(engine.Progress)) (*hub.Pulled, error) {
	w := newDownloadView(a.stderr, told)
	o.Watcher = w
	p, err := h.Pull(a.ctx, n, o)
	w.close(err)
	if err != nil && a.ctx.Err() != nil {
		fmt.Fprintln(a.stderr, "what was downloaded is kept: the same command goes on from there")
	}
	return p, err
}

// downloadView shows a download: bars on a terminal, else a line for each file and one now and then.
type downloadView struct {
	w     io.Writer
	bars  *mpb.Progress // nil when w is no terminal
	told  func(engine.Progress)
	meter downloadMeter

	mu       sync.Mutex
	have     map[string]int64    // bytes by file
	bar      map[string]*mpb.Bar // of the files under way
	sum      *mpb.Bar
	lastLine time.Time
}

// plainLineEvery is the pause between two lines about how far a download is where there is no terminal.
const plainLineEvery = 10 * time.Second

func newDownloadView(w io.Writer, told func(engine.Progress)) *downloadView {
	v := &downloadView{w: w, told: told, have: map[string]int64{}, bar: map[string]*mpb.Bar{}, lastLine: time.Now()}
	if isTerminal(w) {
		v.bars = newBars(w)
	}
	return v
}

func newBars(w io.Writer, more ...mpb.ContainerOption) *mpb.Progress {
	return mpb.New(append(more, mpb.WithOutput(w), mpb.WithWidth(40), mpb.WithRefreshRate(150*time.Millisecond))...)
}

// Plan tells how much there is to download.
func (v *downloadView) Plan(files []hub.File) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var more int64
	for _, f := range files {
		more += max(f.Size, 0)
	}
	done, total := v.meter.add(0, more)
	if v.bars == nil {
		fmt.Fprintf(v.w, "downloading %d files, %s\n", len(files), byteSize(more))
		return
	}
	v.sum = v.bars.New(0, mpb.BarStyle(), mpb.BarPriority(1<<30), mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(fmt.Sprintf("%d files", len(files)), decor.WCSyncSpaceR), sizes()),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return v.meter.speed() })))
	v.sum.SetTotal(total, false)
	v.sum.SetCurrent(done)
}

// sizes writes how many bytes are there, of how many.
func sizes() decor.Decorator {
	return decor.Any(func(s decor.Statistics) string {
		return fmt.Sprintf("%s of %s", byteSize(s.Current), byteSize(s.Total))
	}, decor.WCSyncSpace)
}

// Begin shows a file.
func (v *downloadView) Begin(f hub.File, have int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.bars != nil {
		b := v.bars.New(0, mpb.BarStyle(), mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Name(shorten(f.Path, 36), decor.WCSyncSpaceR), sizes()),
			mpb.AppendDecorators(decor.Percentage(decor.WCSyncSpace)))
		b.SetTotal(f.Size, false)
		b.SetCurrent(have)
		v.bar[f.Path] = b
	}
	v.count(f, have)
}

// shorten leaves the end of a long name, which tells the parts of a model apart.
func shorten(name string, most int) string {
	if r := []rune(name); len(r) > most {
		return "…" + string(r[len(r)-most+1:])
	}
	return name
}

// Advance moves a file's bar.
func (v *downloadView) Advance(f hub.File, have int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if b := v.bar[f.Path]; b != nil {
		b.SetCurrent(have)
	}
	v.meter.received(max(have-v.have[f.Path], 0), time.Now())
	v.count(f, have)
}

// count adds up all files. The lock is held.
func (v *downloadView) count(f hub.File, have int64) {
	done, total := v.meter.add(have-v.have[f.Path], 0)
	v.have[f.Path] = have
	if v.sum != nil {
		v.sum.SetCurrent(done)
	}
	if v.told != nil {
		v.told(engine.Progress{Phase: engine.PhaseDownload, Done: done, Total: max(total, done), Name: f.Path})
	}
	if v.bars == nil && time.Since(v.lastLine) > plainLineEvery {
		v.lastLine = time.Now()
		fmt.Fprintf(v.w, "%s of %s\n", byteSize(done), byteSize(total))
	}
}

// End takes a file's bar away.
func (v *downloadView) End(f hub.File, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	b := v.bar[f.Path]
	delete(v.bar, f.Path)
	switch {
	case b != nil && err != nil:
		b.Abort(true)
	case b != nil:
		b.SetTotal(-1, true)
	case v.bars == nil && err == nil:
		fmt.Fprintf(v.w, "%s (%s)\n", f.Path, byteSize(v.have[f.Path]))
	}
}

// Note writes a line.
func (v *downloadView) Note(f hub.File, text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if f.Path != "" {
		text = f.Path + ": " + text
	}
	w := v.w
	if v.bars != nil {
		w = v.bars
	}
	fmt.Fprintln(w, text)
}

// close takes the bars away.
func (v *downloadView) close(err error) {
	if v.bars == nil {
		return
	}
	if v.sum != nil && err == nil {
		v.sum.SetTotal(-1, true)
		v.bars.Wait()
		return
	}
	v.bars.Shutdown()
}

// downloadMeter counts bytes and measures how many come in a second. It has a lock of its own, for bars ask it while they are
// drawn, and whoever moves a bar waits until it is drawn.
type downloadMeter struct {
	mu          sync.Mutex
	done, total int64
	at          [8]time.Time // when each of the last few seconds began,
	bytes       [8]int64     // and what came in it
	n           int
}

const meterSlice = time.Second

// add counts bytes that are there and bytes that are wanted.
func (m *downloadMeter) add(done, total int64) (doneNow, totalNow int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done += done
	m.total += total
	return m.done, m.total
}

// received counts bytes that came just now.
func (m *downloadMeter) received(n int64, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.n == 0 || now.Sub(m.at[m.n-1]) >= meterSlice {
		if m.n == len(m.at) {
			copy(m.at[:], m.at[1:])
			copy(m.bytes[:], m.bytes[1:])
			m.n--
		}
		m.at[m.n], m.bytes[m.n] = now, 0
		m.n++
	}
	m.bytes[m.n-1] += n
}

// speed writes how fast it goes and how long it will take; nothing while nobody can say.
func (m *downloadMeter) speed() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.n == 0 {
		return ""
	}
	var sum int64
	for _, b := range m.bytes[:m.n] {
		sum += b
	}
	took := time.Since(m.at[0])
	if took < meterSlice/2 || sum == 0 {
		return ""
	}
	perSecond := float64(sum) / took.Seconds()
	left := time.Duration(float64(max(m.total-m.done, 0)) / perSecond * float64(time.Second))
	return fmt.Sprintf(" %s/s, %s left", byteSize(perSecond), left.Round(time.Second))
}
