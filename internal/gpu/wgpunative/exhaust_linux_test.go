//go:build cgo

package wgpunative_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/gputest"
	"github.com/pagelight/pagelight/internal/gpu/wgpunative"
)

const exhaustEnv = "PAGELIGHT_TEST_EXHAUST"

// The process is given little more memory than it has, in a child since a limit of the process cannot be undone.
func TestExhaustedMemory(t *testing.T) {
	if os.Getenv(exhaustEnv) != "" {
		exhaust(t)
		return
	}
	if gputest.Open(t).Info().Kind != gpu.KindSoftware {
		t.Skip("a limit of the process does not limit the memory of a real GPU")
	}
	child := exec.Command(os.Args[0], "-test.run=^TestExhaustedMemory$", "-test.v")
	child.Env = append(os.Environ(), exhaustEnv+"=1")
	out, err := child.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestExhaustedMemory") {
		t.Fatalf("%v\n%s", err, out)
	}
}

func exhaust(t *testing.T) {
	d := gputest.Open(t)
	r := newRig(t, d, 64)
	check(t, d.Submit(r.step, r.fetch))
	got := make([]byte, 4)
	check(t, d.Read(context.Background(), r.out, 0, got))
	data := make([]byte, 64<<20)

	var address syscall.Rlimit
	check(t, syscall.Getrlimit(syscall.RLIMIT_AS, &address))
	address.Cur = uint64(virtualBytes(t)) + 1<<30
	check(t, syscall.Setrlimit(syscall.RLIMIT_AS, &address))
	var buffers []gpu.Buffer
	for {
		b, err := d.NewBuffer("filler", 64<<20, gpu.UsageStorage|gpu.UsageCopyDst)
		if err != nil {
			if !errors.Is(err, gpu.ErrOutOfMemory) {
				t.Fatalf("got %v, want ErrOutOfMemory", err)
			}
			t.Logf("after %d buffers: %v", len(buffers), err)
			break
		}
		if buffers = append(buffers, b); len(buffers) > 100 {
			t.Fatal("6.4 GB in a process of 1 GB")
		}
	}
	// A write needs memory to stage the bytes: it works or says that there is none.
	if err := d.WriteBuffer(buffers[0], 0, data); err != nil && !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("a write without memory: got %v, want ErrOutOfMemory", err)
	}
	for _, b := range buffers {
		b.Release()
	}
	err := d.Submit(r.step, r.fetch)
	if wgpunative.ExhaustionLoses && errors.Is(err, gpu.ErrDeviceLost) {
		return
	}
	check(t, err)
	check(t, d.Read(context.Background(), r.out, 0, got))
	if w := gputest.As[uint32](got)[0]; w != 2 {
		t.Errorf("got %d, want 2", w)
	}
	b, err := d.NewBuffer("again", 64<<20, gpu.UsageStorage)
	check(t, err)
	b.Release()
}

// virtualBytes is the size of the address space in use.
func virtualBytes(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/statm")
	check(t, err)
	var pages int64
	for _, c := range strings.Fields(string(status))[0] {
		pages = pages*10 + int64(c-'0')
	}
	return pages * int64(os.Getpagesize())
}
