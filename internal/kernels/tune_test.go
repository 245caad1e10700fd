package kernels

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/cpu"
	"github.com/pagelight/pagelight/internal/quant"
)

// liar is a device that reads something else while a given variant is tried, and knows which variant a program is of.
type liar struct {
	gpu.Device
	set     *Set
	wrong   string
	variant map[gpu.Program]string
}

func (d *liar) NewProgram(label string, commands []gpu.Command) (gpu.Program, error) {
	p, err := d.Device.NewProgram(label, commands)
	for _, v := range d.set.tuning.Choices {
		d.variant[p] = v
	}
	return p, err
}

func (d *liar) Read(ctx context.Context, src gpu.Buffer, offset int64, dst []byte) error {
	err := d.Device.Read(ctx, src, offset, dst)
	for _, v := range d.set.tuning.Choices {
		if v == d.wrong {
			dst[3] ^= 0x41
		}
	}
	return err
}

// TestTunerTakesWhatIsFasterAndRight: a variant that is faster is taken, unless it is faster by little, or gives other values.
func TestTunerTakesWhatIsFasterAndRight(t *testing.T) {
	processor, err := cpu.Open(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer processor.Close()
	dev := &liar{Device: processor, variant: map[gpu.Program]string{}}
	s := NewTuned(dev, TuningFor(gpu.Info{Kind: gpu.KindHardware}))
	defer s.Release()
	dev.set = s
	buffer := func(words int, usage gpu.Usage) gpu.Buffer {
		b, err := dev.NewBuffer("b", int64(4*words), usage|gpu.UsageCopyDst|gpu.UsageCopySrc)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	const k, n = 64, 32
	w := Weight{Rows: n, K: k, Parts: []Part{{Rows: n, Format: quant.Format{Kind: quant.F32}, Data: buffer(k*n, gpu.UsageStorage)}}}
	ones := make([]float32, k*n)
	for i := range ones {
		ones[i] = float32(i % 7)
	}
	if err := dev.WriteBuffer(w.Parts[0].Data, 0, gpu.Bytes(ones)); err != nil {
		t.Fatal(err)
	}
	step := gpu.Binding{Buffer: buffer(StepBytes/4, gpu.UsageUniform)}
	for range 2 { // two layers
		op, err := s.Linear(LinearArgs{Rows: 1, X: buffer(k, gpu.UsageStorage), W: w, Y: buffer(n, gpu.UsageStorage), Step: step})
		if err != nil {
			t.Fatal(err)
		}
		if op.Name() != "linear" {
			t.Fatal(op.Name())
		}
	}
	var key, first, second string
	for k, variants := range s.Choosable() {
		key, first, second = k, variants[0], variants[1]
	}
	if len(s.Choosable()) != 1 || len(s.trials[key]) != 2 {
		t.Fatalf("%v with %d ops, want one choice of two", s.Choosable(), len(s.trials[key]))
	}
	for _, c := range []struct {
		name         string
		took         time.Duration // of the second variant; that of the first is 1000
		other        time.Duration // the same, every other time; 0: took
		wrong        string
		want         string
		wantRejected bool
	}{
		{"faster", 500, 0, "", second, false},
		{"slower", 1500, 0, "", first, false},
		{"a little faster each time", 970, 980, "", second, false},
		{"hardly faster", 995, 0, "", first, false},
		{"faster most times", 500, 1100, "", first, false},
		{"faster and wrong", 500, 0, second, first, true},
	} {
		times := 0
		dev.wrong = c.wrong
		tuner := Tuner{
			Set: s,
			Prepare: func(rows, _ int) error {
				return dev.WriteBuffer(step.Buffer, 0, gpu.Bytes([]uint32{uint32(rows), 0, 0, 0}))
			},
			Time: func(_ context.Context, p gpu.Program) (time.Duration, error) {
				if dev.variant[p] != second {
					return 1000, nil
				}
				if times++; times%2 == 0 && c.other > 0 {
					return c.other, nil
				}
				return c.took, nil
			},
		}
		list, err := tuner.Run(t.Context())
		if err != nil || len(list) != 1 {
			t.Fatalf("%s: %v, %v", c.name, list, err)
		}
		m := list[0]
		if m.Key != key || m.Default != first || m.Chosen != c.want || (m.Rejected[second] != "") != c.wantRejected {
			t.Errorf("%s: %+v, want %s", c.name, m, c.want)
		}
		if why := m.Rejected[second]; c.wantRejected && !strings.Contains(why, "element 0 of b") {
			t.Errorf("%s: %q does not say which value is wrong", c.name, why)
		}
		if s.tuning.Choices != nil || s.trying {
			t.Errorf("%s: the set is not as it was", c.name)
		}
	}
	if len(Hash()) != 64 {
		t.Errorf("the hash of the kernels is %q", Hash())
	}
}
