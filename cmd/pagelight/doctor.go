package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/engine/local"
	"github.com/pagelight/pagelight/internal/conformance"
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/wgpunative"
)

type doctorCmd struct {
	Full bool `help:"Run the whole conformance suite instead of the quick self-test (minutes on a software adapter)."`
	JSON bool `name:"json" help:"Print a JSON object."`

	Tune    *string       `placeholder:"MODEL" help:"Instead of testing: time the variants of the kernels that this model needs on the GPU, and keep what is faster for the next starts. PAGELIGHT_TUNING is the folder of what was found, or off."`
	TuneFor time.Duration `default:"1m" placeholder:"TIME" help:"Longest that measuring may take, once the model is open; the most expensive kernels come first. 0 is any time."`

	Device    string   `enum:"auto,gpu,cpu" default:"auto" env:"PAGELIGHT_DEVICE" help:"What to look at: auto (everything), gpu (adapters, software ones too), cpu."`
	Quant     string   `enum:"none,q8,q4" default:"none" env:"PAGELIGHT_QUANT" help:"Weights of the models whose place is foretold: none (as stored), q8 or q4 (every matrix)."`
	GPUMemory byteSize `name:"gpu-memory" placeholder:"BYTES" env:"PAGELIGHT_GPU_MEMORY" help:"Budget for weights, cache and scratch. Default by kind of device: 8G for a GPU, else 4G."`
	KV        string   `name:"kv" enum:"f16,f32,int8" default:"f16" env:"PAGELIGHT_KV" help:"How the model of --tune caches keys and values: f16, f32 or int8."`
	LogLevel  string   `enum:"debug,info,warn,error" default:"warn" hidden:""`
}

// diagnosis is what doctor --json prints.
type diagnosis struct {
	Version  string         `json:"version"`
	Go       string         `json:"go"`
	Platform string         `json:"platform"`
	Devices  []deviceReport `json:"devices"`
	Auto     string         `json:"auto"`      // what runs the built-in model
	WouldRun []placement    `json:"would_run"` // what would run where
	OK       bool           `json:"ok"`
}

// placement says where a model would run.
type placement struct {
	Model       string `json:"model"`
	Device      string `json:"device"`
	Kind        string `json:"kind"`
	WeightBytes int64  `json:"weight_bytes"`
	Budget      int64  `json:"memory_budget"`
	Fits        bool   `json:"weights_fit"`
}

type deviceReport struct {
	Adapter gpu.Info     `json:"adapter"`
	Limits  *gpu.Limits  `json:"limits,omitempty"`
	Has     []capability `json:"capabilities,omitempty"`
	Tests   []testReport `json:"self_test,omitempty"`
	Passed  int          `json:"passed"`
	Failed  int          `json:"failed"`
	Error   string       `json:"error,omitempty"`
}

// capability is something beyond the portable subset of WebGPU, and whether the device has it.
type capability struct {
	engine.Capability
	Has bool `json:"has"`
}

type testReport struct {
	Name   string  `json:"name"`
	OK     bool    `json:"ok"`
	Error  string  `json:"error,omitempty"`
	Millis float64 `json:"ms"`
}

// Run looks at every device and tests every kernel on it. It fails when a kernel does.
func (c *doctorCmd) Run(a *app) error {
	if c.TuneFor < 0 {
		return usagef("--tune-for must not be negative, got %v", c.TuneFor)
	}
	if c.Tune != nil {
		switch {
		case *c.Tune == "":
			return usagef("--tune needs a model")
		case c.Full:
			return usagef("--full tests and --tune measures: give one of them")
		case os.Getenv("PAGELIGHT_TUNING") == "off":
			return usagef("--tune has nowhere to keep what it finds: PAGELIGHT_TUNING is off")
		}
		return c.tune(a)
	}
	d := diagnosis{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, OK: true}
	var adapters []gpu.Info
	var err error
	if c.Device != "cpu" {
		adapters, err = wgpunative.Adapters()
		if err != nil && (c.Device == "gpu" || !errors.Is(err, gpu.ErrNoAdapter)) {
			return err
		}
	}
	if !c.JSON {
		fmt.Fprintf(a.stdout, "pagelight %s, %s, %s\n", d.Version, d.Go, d.Platform)
		if c.Device != "cpu" && len(adapters) == 0 {
			fmt.Fprintln(a.stdout, "no WebGPU adapter: install a Vulkan driver (a software one: apt-get install mesa-vulkan-drivers)")
		}
	}
	for _, info := range adapters {
		d.add(a, c, info, func() (gpu.Device, error) {
			return wgpunative.Open(a.ctx, wgpunative.Options{Prefer: info.Kind, Adapter: info.Name})
		})
	}
	if c.Device != "gpu" {
		d.add(a, c, gpu.Info{Kind: gpu.KindCPU}, func() (gpu.Device, error) {
			return local.OpenDevice(a.ctx, local.Options{Device: "cpu"}, nil)
		})
	}
	for _, model := range []string{local.Builtin, "synthetic:ernie-4.5-0.3b"} {
		p, err := c.place(a.ctx, model)
		if err != nil {
			return err
		}
		d.WouldRun = append(d.WouldRun, p)
		if !c.JSON {
			fits := "fit"
			if !p.Fits {
				fits = "do not fit"
			}
			fmt.Fprintf(a.stdout, "%s would run on %s: weights of %s %s the budget of %s\n",
				p.Model, p.Device, byteSize(p.WeightBytes), fits, byteSize(p.Budget))
		}
	}
	d.Auto = d.WouldRun[0].Device
	if c.JSON {
		err = printJSON(a.stdout, d)
	}
	if err == nil && !d.OK {
		err = errors.New("doctor: at least one kernel or device failed")
	}
	return err
}

// place says which device a model would get.
func (c *doctorCmd) place(ctx context.Context, model string) (p placement, err error) {
	src, err := local.OpenModel(model, c.Quant, nil)
	if err != nil {
		return p, err
	}
	defer src.Close()
	dev, err := local.OpenDevice(ctx, local.Options{Device: c.Device}, src)
	if err != nil {
		return p, err
	}
	defer dev.Close()
	info := dev.Info()
	plan, err := engine.PlanMemory(engine.Config{Source: src, GPUMemory: int64(c.GPUMemory)}, info, dev.Limits())
	if err != nil {
		return p, err
	}
	p = placement{
		Model: model, Device: info.Name, Kind: string(info.Kind), WeightBytes: plan.Weights, Budget: plan.Budget, Fits: plan.Fits,
	}
	return p, nil
}

// add tests one device and prints what it found as it goes.
func (d *diagnosis) add(a *app, c *doctorCmd, info gpu.Info, open func() (gpu.Device, error)) {
	r := deviceReport{Adapter: info}
	dev, err := open()
	if err != nil {
		r.Error = err.Error()
		d.OK = false
	} else {
		defer dev.Close()
		limits := dev.Limits()
		r.Adapter, r.Limits = dev.Info(), &limits
		if r.Adapter.Kind != gpu.KindCPU { // which reads no WGSL
			for _, c := range engine.Capabilities() {
				r.Has = append(r.Has, capability{c, c.Has(r.Adapter)})
			}
		}
		if !c.JSON {
			printDevice(a, &r)
		}
		r.test(a, c, dev)
		d.OK = d.OK && r.Failed == 0
	}
	if !c.JSON {
		if r.Error != "" {
			fmt.Fprintf(a.stdout, "%s\n  cannot be opened: %s\n", r.Adapter.Name, r.Error)
		} else {
			fmt.Fprintf(a.stdout, "  self-test: %d passed, %d failed\n", r.Passed, r.Failed)
		}
	}
	d.Devices = append(d.Devices, r)
}

func printDevice(a *app, r *deviceReport) {
	i, l := r.Adapter, r.Limits
	fmt.Fprintf(a.stdout, "%s (%s, %s)\n", i.Name, i.Kind, i.Backend)
	fmt.Fprintf(a.stdout, "  buffer up to %s, binding up to %s, workgroup memory %s, %d invocations\n",
		byteSize(l.MaxBufferSize), byteSize(l.MaxStorageBinding), byteSize(l.MaxWorkgroupMemory), l.MaxInvocations)
	if len(i.Features) > 0 {
		fmt.Fprintf(a.stdout, "  features %v\n", i.Features)
	}
	for _, c := range r.Has {
		has := "has no"
		if c.Has {
			has = "has"
		}
		fmt.Fprintf(a.stdout, "  %s %s (%s): variants of %s\n", has, c.Name, strings.Join(c.Features, ", "), strings.Join(c.Kernels, ", "))
	}
	if i.BarrierFree {
		fmt.Fprintln(a.stdout, "  runs on the processor: kernels without barriers are used")
	}
}

// test runs the conformance cases.
func (r *deviceReport) test(a *app, c *doctorCmd, dev gpu.Device) {
	level := conformance.Quick
	if c.Full {
		level = conformance.Full
	}
	for _, tc := range conformance.Cases(level) {
		if a.ctx.Err() != nil {
			return
		}
		start := time.Now()
		err := tc.Run(a.ctx, dev)
		t := testReport{Name: tc.Name, OK: err == nil, Millis: float64(time.Since(start).Microseconds()) / 1000}
		if err != nil {
			t.Error = err.Error()
			r.Failed++
			if !c.JSON {
				fmt.Fprintf(a.stdout, "  FAILED %v\n", err)
			}
		} else {
			r.Passed++
		}
		r.Tests = append(r.Tests, t)
	}
}

// tuned is what doctor --tune --json prints.
type tuned struct {
	File    string            `json:"file"`
	Choices []engine.Measured `json:"choices"` // times in nanoseconds
}

// tune measures the choices among kernels for a model.
func (c *doctorCmd) tune(a *app) error {
	if err := a.fetchModel(*c.Tune, nil); err != nil {
		return err
	}
	src, err := local.OpenModel(*c.Tune, c.Quant, nil)
	if err != nil {
		return modelError{err}
	}
	if err := src.Close(); err != nil {
		return err
	}
	list, file, err := local.Tune(a.ctx, local.Options{
		Model: *c.Tune, Quant: c.Quant, Device: c.Device, Engine: engine.Config{GPUMemory: int64(c.GPUMemory), KV: engine.KVType(c.KV)},
	}, c.TuneFor)
	if m := (*engine.MemoryError)(nil); errors.As(err, &m) {
		lacks := func(r engine.Remedy) bool { return r.MaxModelLen > 0 || r.MaxSeqs > 0 } // flags that doctor does not have
		return modelError{fmt.Errorf("%w%s", err, wouldFit(slices.DeleteFunc(slices.Clone(m.Remedies), lacks)))}
	}
	if err != nil && len(list) == 0 {
		return err
	}
	if c.JSON {
		return errors.Join(printJSON(a.stdout, tuned{file, list}), err)
	}
	for _, m := range list {
		line := fmt.Sprintf("%-50s %s %v", m.Key, m.Default, m.Times[m.Default])
		if m.Chosen != m.Default {
			line += fmt.Sprintf(", chosen %s %v", m.Chosen, m.Times[m.Chosen])
		}
		fmt.Fprintln(a.stdout, line)
		for _, v := range slices.Sorted(maps.Keys(m.Rejected)) {
			fmt.Fprintf(a.stdout, "  left out %s: %s\n", v, m.Rejected[v])
		}
	}
	_, failed := fmt.Fprintf(a.stdout, "kept in %s\n", file)
	return errors.Join(failed, err)
}
