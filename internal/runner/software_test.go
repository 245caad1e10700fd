package runner

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/gputest"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
	"github.com/pagelight/pagelight/wgsl"
)

// counting is a device that knows which kernel a pipeline is.
type counting struct {
	gpu.Device
	names map[gpu.Pipeline]string
}

func (c counting) NewPipelines(ctx context.Context, descs []gpu.PipelineDesc, done func(string)) ([]gpu.Pipeline, error) {
	made, err := c.Device.NewPipelines(ctx, descs, done)
	for i, p := range made {
		c.names[p] = descs[i].Kernel
	}
	return made, err
}

// TestSoftwareAdaptersDoNoMore holds what a decode step costs software adapters to what it cost before kernels were written for
// GPUs: there a dispatch takes some 30 us and a barrier a change of context for each invocation. The numbers are those of commit
// cb06831; barriers are counted as they stand in the kernels' text.
func TestSoftwareAdaptersDoNoMore(t *testing.T) {
	for _, c := range []struct {
		model, vendor        string
		rows                 int
		dispatches, barriers int
	}{
		{"ernie", "mesa", 1, 36, 1},
		{"ernie", "mesa", 4, 36, 1},
		{"ernie", "mesa", 16, 36, 1},
		{"ernie", "google", 1, 36, 1},
		{"ernie", "google", 16, 36, 1},
		{"ernie-moe", "mesa", 1, 50, 7},
		{"ernie-moe", "google", 16, 52, 13},
		{"qwen3", "mesa", 1, 28, 5},
		{"qwen3", "google", 4, 28, 5},
	} {
		src, err := weights.OpenDir(filepath.Join(goldens, c.model))
		if err != nil {
			t.Fatal(err)
		}
		dev := counting{gputest.Open(t), map[gpu.Pipeline]string{}}
		tuning := kernels.TuningFor(gpu.Info{Kind: gpu.KindSoftware, BarrierFree: true, Vendor: c.vendor})
		r, err := Open(context.Background(), dev, src, Config{
			KV: quant.KVF16, Budget: 1 << 30, MaxModelLen: 64, MaxTokens: 16, MaxLogits: 16, MaxSeqs: 16, NumTokens: src.Config().VocabSize, Tuning: &tuning,
			Progress: func(string, int64, int64, string) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		commands := record(record(record(nil, r.fwd.Ops(r.fwd.TrunkFor(c.rows, c.rows)), c.rows), r.fwd.HeadOf(c.rows), c.rows), r.fwd.Pick, c.rows)
		barriers := 0
		var with []string
		for _, cmd := range commands {
			name := dev.names[cmd.Pipeline]
			k, ok := wgsl.Find(name)
			if !ok {
				t.Fatalf("no kernel %q", name)
			}
			text, err := wgsl.Source(name, k.Libs, nil)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(text, "workgroupBarrier()"); n > 0 {
				barriers += n
				with = append(with, name)
			}
		}
		slices.Sort(with)
		if len(commands) > c.dispatches || barriers > c.barriers {
			t.Errorf("%s, %s, %d rows: %d dispatches and %d barriers (%q), at commit cb06831 %d and %d", c.model, c.vendor, c.rows, len(commands), barriers, slices.Compact(with), c.dispatches, c.barriers)
		}
		r.Close()
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	}
}
