package runner

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/cpu"
	"github.com/pagelight/pagelight/internal/weights"
)

// compilingDevice notes in which order kernels are compiled and weights written.
type compilingDevice struct {
	gpu.Device
	t      *testing.T
	events []string
	fault  error // of the build
	refuse string
}

func (d *compilingDevice) StartPipelines(descs []gpu.PipelineDesc) (gpu.Build, error) {
	d.events = append(d.events, "start")
	return &noted{d, descs}, nil
}

func (d *compilingDevice) NewPipelines(ctx context.Context, descs []gpu.PipelineDesc, done func(string)) ([]gpu.Pipeline, error) {
	d.events = append(d.events, "all at once")
	return d.Device.NewPipelines(ctx, descs, done)
}

func (d *compilingDevice) WriteBuffer(dst gpu.Buffer, offset int64, data []byte) error {
	if strings.HasPrefix(dst.Label(), "model.") {
		d.events = append(d.events, "write")
		if dst.Label() == d.refuse {
			return errors.Join(gpu.ErrInvalid, errors.New("refused"))
		}
	}
	return d.Device.WriteBuffer(dst, offset, data)
}

type noted struct {
	d     *compilingDevice
	descs []gpu.PipelineDesc
}

func (n *noted) Wait(ctx context.Context, done func(string)) ([]gpu.Pipeline, error) {
	if ctx.Err() != nil {
		n.d.events = append(n.d.events, "give up")
		return nil, ctx.Err()
	}
	n.d.events = append(n.d.events, "wait")
	if n.d.fault != nil {
		return nil, n.d.fault
	}
	return n.d.Device.NewPipelines(ctx, n.descs, done)
}

// openNoted opens a small model and gives what happened, runs of equal events as one, and the phases of progress.
func openNoted(t *testing.T, change func(*compilingDevice)) (events, phases []string, err error) {
	t.Helper()
	src, err := weights.OpenDir("../model/testdata/ernie")
	if err != nil {
		t.Fatal(err)
	}
	processor, err := cpu.Open(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer processor.Close()
	dev := &compilingDevice{Device: processor, t: t}
	change(dev)
	last, far := "", int64(0)
	r, err := Open(t.Context(), dev, src, Config{
		Budget: 1 << 30, MaxModelLen: 64, MaxLogits: 1, MaxSeqs: 1, NumTokens: src.Config().VocabSize,
		Progress: func(phase string, done, total int64, _ string) {
			if phase == last && done < far || done > total {
				t.Errorf("%s: %d of %d after %d", phase, done, total, far)
			}
			last, far = phase, done
			phases = append(phases, phase)
		},
	})
	if err == nil {
		r.Close()
	}
	return slices.Compact(dev.events), slices.Compact(phases), err
}

// TestKernelsAreCompiledWhileWeightsArrive: the first weights are written after compiling has begun, and nobody waits for it before
// the last of them.
func TestKernelsAreCompiledWhileWeightsArrive(t *testing.T) {
	events, phases, err := openNoted(t, func(*compilingDevice) {})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"start", "write", "wait"}; !slices.Equal(events, want) {
		t.Errorf("%v, want %v", events, want)
	}
	if want := []string{"upload", "compile", "warmup"}; !slices.Equal(phases, want) {
		t.Errorf("progress told of %v, want %v", phases, want)
	}
}

// TestFailedLoadEndsTheBuild: what a build has made is freed, and an error that may be a kernel's is the kernel's when it is.
func TestFailedLoadEndsTheBuild(t *testing.T) {
	broken := errors.New("kernel rope is broken")
	for _, c := range []struct {
		name   string
		fault  error
		events []string
		want   string
	}{
		{"of the upload", nil, []string{"start", "write", "wait"}, "refused"},
		{"of a kernel", broken, []string{"start", "write", "wait"}, "kernel rope is broken"},
	} {
		events, _, err := openNoted(t, func(d *compilingDevice) { d.refuse, d.fault = "model.norm.weight", c.fault })
		if err == nil || !strings.Contains(err.Error(), c.want) || !slices.Equal(events, c.events) {
			t.Errorf("%s: %v after %v, want one that says %q after %v", c.name, err, events, c.want, c.events)
		}
	}
}
