package pack

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/calibrate"
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/cpu"
	"github.com/pagelight/pagelight/internal/weights"
)

// quality packs ERNIE-Tiny in several ways and measures each on held-out text.
type quality struct {
	src       weights.Source
	tok       *engine.Text
	heldOut   [][]int32
	calibrate [][]int32
}

// openQuality opens the model, with the first windows of the held-out text.
func openQuality(t *testing.T, windows, calibrationTokens int) *quality {
	t.Helper()
	root := os.Getenv("PAGELIGHT_FIXTURES")
	if root == "" {
		t.Skip("SKIPPED: models/ernie-tiny needs PAGELIGHT_FIXTURES")
	}
	q := &quality{}
	var err error
	if q.src, err = weights.OpenDir(filepath.Join(root, "models/ernie-tiny")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.src.Close() })
	if q.tok, err = engine.OpenText(context.Background(), q.src); err != nil {
		t.Fatal(err)
	}
	heldOut, err := os.ReadFile("../../engine/local/testdata/holdout.txt")
	if err != nil {
		t.Fatal(err)
	}
	q.heldOut = q.windows(t, string(heldOut), 0)
	q.heldOut = q.heldOut[:min(windows, len(q.heldOut))]
	q.calibrate = q.windows(t, calibrate.Text, calibrationTokens)
	return q
}

func (q *quality) windows(t *testing.T, text string, limit int) [][]int32 {
	t.Helper()
	ids, err := q.tok.TokenizeBare(text, false)
	if err != nil {
		t.Fatal(err)
	}
	w, err := calibrate.Windows(ids, calibrate.Window, limit)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// loss is the mean negative log-likelihood of the held-out text.
func (q *quality) loss(t *testing.T, src weights.Source) float64 {
	t.Helper()
	c, err := calibrate.Open(context.Background(), processor(t), src, q.heldOut)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	loss, err := c.Loss(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return loss
}

func processor(t *testing.T) gpu.Device {
	t.Helper()
	dev, err := cpu.Open(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dev.Close)
	return dev
}

// packed gives the part of the perplexity that a recipe adds, and the bits of the linear layers.
func (q *quality) packed(t *testing.T, base float64, recipe *Recipe) (added, bits float64) {
	t.Helper()
	ctx := context.Background()
	out := filepath.Join(t.TempDir(), "bundle")
	err := Run(ctx, Options{
		Source: q.src, Recipe: recipe, Out: out, Windows: q.calibrate,
		Device: func(context.Context) (gpu.Device, error) { return cpu.Open(cpu.Options{}) },
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := weights.OpenBundle(ctx, weights.DirStore(out))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	_, _, bits = Sizes(b)
	added = math.Exp(q.loss(t, b)-base) - 1
	t.Logf("%.2f %% at %.2f bits", 100*added, bits)
	return added, bits
}

func simple(t *testing.T, name string, method Method) *Recipe {
	t.Helper()
	r, err := Simple(name, 0, method, "q8")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestQuality holds what rounding costs to what docs/quality.md says, on the first two windows.
func TestQuality(t *testing.T) {
	t.Parallel()
	q := openQuality(t, 2, calibrate.Window)
	base := q.loss(t, q.src)
	if four, bits := q.packed(t, base, simple(t, "q4", RTN)); four > 0.04 || bits > 5 {
		t.Errorf("4 bits add %.2f %% at %.2f bits", 100*four, bits)
	}
	two, _ := q.packed(t, base, simple(t, "q2", RTN))
	ccq, _ := q.packed(t, base, simple(t, "ccq2.75", RTN))
	if ccq > 0.8*two { // 0.78 here, and 0.67 over the whole text
		t.Errorf("ccq2.75 adds %.1f %%, integers of 2 bits %.1f %%", 100*ccq, 100*two)
	}
}

// TestFullQuality is what calibration is worth, on eight windows with the calibration text of the program. It takes some minutes.
func TestFullQuality(t *testing.T) {
	if os.Getenv("PAGELIGHT_FULL") == "" {
		t.Skip("SKIPPED: it runs with PAGELIGHT_FULL=1")
	}
	q := openQuality(t, 8, 16384)
	base := q.loss(t, q.src)
	rounded, _ := q.packed(t, base, simple(t, "q4", RTN))
	for _, m := range []Method{AWQ, GPTQ, AWQGPTQ} {
		if added, bits := q.packed(t, base, simple(t, "q4", m)); added > rounded || bits > 5 {
			t.Errorf("%s adds %.2f %% at %.2f bits, rounding %.2f %%", m, 100*added, bits, 100*rounded)
		}
	}
	two, _ := q.packed(t, base, simple(t, "q2", GPTQ))
	if ccq, _ := q.packed(t, base, simple(t, "ccq2.75", GPTQ)); ccq > 0.8*two {
		t.Errorf("ccq2.75 adds %.1f %%, integers of 2 bits %.1f %%", 100*ccq, 100*two)
	}
	text, err := os.ReadFile("../../examples/recipes/ernie-tiny-2bit.yaml")
	if err != nil {
		t.Fatal(err)
	}
	recipe, err := ParseRecipe(text)
	if err != nil {
		t.Fatal(err)
	}
	if mixed, bits := q.packed(t, base, recipe); mixed > 0.5*two || bits > 3 {
		t.Errorf("the mixed recipe adds %.1f %% at %.2f bits, pure 2 bits add %.1f %%", 100*mixed, bits, 100*two)
	}
}
