// Package local opens models and devices by name on the machine that the program runs on.
//
//	eng, err := local.Open(ctx, local.Options{Model: "builtin"})
package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/builtin"
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/cpu"
	"github.com/pagelight/pagelight/internal/gpu/wgpunative"
	"github.com/pagelight/pagelight/internal/hub"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
)

// Builtin is the name of the model that is part of the program.
const Builtin = "builtin"

// Options say what to open.
type Options struct {
	// Model is a folder (Hugging Face, bundle, or one with a GGUF file), a file in one, "hf:ORG/NAME[@REVISION][:FILE]" for a
	// model that Pull has downloaded, "builtin", or "synthetic:NAME". Empty is "builtin".
	Model string
	// Device is "auto" (a hardware adapter, else whichever of software adapter and processor is faster for the model),
	// "gpu" (any adapter, software ones too) or "cpu". Empty is "auto".
	Device string
	// Quant is "none" (as stored), "q8" or "q4" (every matrix). Empty is "none".
	Quant string
	// DefaultLimits restricts the device to the limits that WebGPU guarantees everywhere.
	DefaultLimits bool

	// Engine holds what remains; its Device and Source are filled in.
	Engine engine.Config
	// Prepare, if set, has the last word on Engine, when everything is filled in and nothing is on the device yet.
	Prepare func(*engine.Config)
}

// Open opens the model and the device and puts the one on the other.
func Open(ctx context.Context, o Options) (*engine.Engine, error) {
	if o.Engine.Logger == nil {
		o.Engine.Logger = slog.New(slog.DiscardHandler)
	}
	src, err := OpenModel(o.Model, o.Quant, o.Engine.Logger)
	if err != nil {
		return nil, err
	}
	dev, err := OpenDevice(ctx, o, src)
	if err != nil {
		return nil, errors.Join(err, src.Close())
	}
	o.Engine.Device, o.Engine.Source = dev, src
	if o.Engine.Choices == nil {
		o.Engine.Choices = loadChoices(dev, o.Engine.Logger)
	}
	if names := os.Getenv("PAGELIGHT_PREFER"); names != "" && o.Engine.Prefer == nil {
		o.Engine.Prefer = strings.Split(names, ",")
	}
	if o.Prepare != nil {
		o.Prepare(&o.Engine)
	}
	return engine.Open(ctx, o.Engine)
}

// OpenModel opens a model by name, to be quantized while it is read if quant ("none", "q8", "q4") says so. log, which may
// be nil, hears of matrices that need smaller groups than the others.
func OpenModel(model, quantization string, log *slog.Logger) (weights.Source, error) {
	policy, err := quantPolicy(quantization, log)
	if err != nil {
		return nil, err
	}
	src, err := openSource(model)
	if err != nil || policy == nil {
		return src, err
	}
	return quantize(src, quantization, policy, log), nil
}

// quantize has the matrices of src converted by policy while they are read. log, which may be nil, hears of those that are
// quantized already and stay as they are.
func quantize(src weights.Source, quantization string, policy weights.Policy, log *slog.Logger) weights.Source {
	kept, all := 0, 0
	q := weights.Quantized(src, func(name string, info weights.Info) quant.Format {
		all++
		if info.Format.Group != 0 {
			kept++
		}
		return policy(name, info)
	})
	if kept > 0 && log != nil {
		log.Warn("matrices that are quantized already stay as they are", "quant", quantization, "matrices", kept, "of", all)
	}
	return q
}

// quantPolicy is the policy of that name; nil for "none".
func quantPolicy(quantization string, log *slog.Logger) (weights.Policy, error) {
	note := func(name string, f quant.Format) {
		if log != nil {
			log.Warn("columns are no multiple of the quantization group; using a smaller one", "tensor", name, "format", f)
		}
	}
	switch quantization {
	case "", "none":
		return nil, nil
	case "q8":
		return weights.PolicyQ8(note), nil
	case "q4":
		return weights.PolicyQ4(note), nil
	}
	return nil, fmt.Errorf("quant %q: must be none, q8 or q4", quantization)
}

func openSource(model string) (weights.Source, error) {
	switch {
	case model == "" || model == Builtin:
		return builtin.Open()
	case strings.HasPrefix(model, weights.SyntheticPrefix):
		return weights.OpenSynthetic(model)
	case hub.IsName(model):
		var err error
		if model, err = findInHub(model); err != nil {
			return nil, err
		}
	}
	st, err := os.Stat(model)
	if err != nil {
		return nil, fmt.Errorf("model %q: no such folder or file (a MODEL is a folder, a file in one, %q, %q, or %q)",
			model, hub.Prefix+"ORG/NAME", Builtin, weights.SyntheticPrefix+"ernie-4.5-0.3b")
	}
	dir := model
	if !st.IsDir() {
		switch name := filepath.Base(model); {
		case name == "manifest.json" || name == "config.json" || strings.HasSuffix(name, ".safetensors") || strings.HasSuffix(name, ".safetensors.index.json"):
			dir = filepath.Dir(model)
		case strings.HasSuffix(name, ".gguf"), st.Mode().IsRegular() && weights.BeginsAsGGUF(model):
			return weights.OpenGGUFFile(model)
		default:
			return nil, fmt.Errorf("model %s: neither a folder, nor a GGUF file, nor a .safetensors, config.json or manifest.json in a folder", model)
		}
	}
	return openFolder(dir)
}

// openFolder opens a bundle, a Hugging Face folder, or the one GGUF file in a folder that has no other weights.
func openFolder(dir string) (weights.Source, error) {
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	switch {
	case has("manifest.json"):
		return weights.OpenBundle(context.Background(), weights.DirStore(dir))
	case has("model.safetensors"), has("model.safetensors.index.json"):
		return weights.OpenDir(dir)
	}
	gguf, err := weights.FindGGUF(dir)
	if err != nil {
		return nil, err
	}
	if gguf != "" {
		return weights.OpenGGUFFile(gguf)
	}
	return weights.OpenDir(dir)
}

// OpenDevice opens the device that o asks for. src is the model that it is for. With "auto" the log says what was taken
// instead of a hardware adapter.
func OpenDevice(ctx context.Context, o Options, src weights.Source) (gpu.Device, error) {
	log := o.Engine.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	native := wgpunative.Options{DefaultLimits: o.DefaultLimits, Label: "pagelight"}
	switch o.Device {
	case "cpu":
		return cpu.Open(cpu.Options{})
	case "gpu":
		dev, err := wgpunative.Open(ctx, native)
		if err != nil {
			return nil, fmt.Errorf("device gpu: %w (a software driver will do: on Debian and Ubuntu, apt-get install mesa-vulkan-drivers)", err)
		}
		return dev, nil
	case "", "auto":
	default:
		return nil, fmt.Errorf("device %q: must be auto, gpu or cpu", o.Device)
	}
	dev, err := wgpunative.Open(ctx, native)
	if errors.Is(err, gpu.ErrNoAdapter) {
		log.Warn("no WebGPU adapter, running on the processor", "reason", err)
		return cpu.Open(cpu.Options{})
	}
	if err != nil || dev.Info().Kind == gpu.KindHardware {
		return dev, err
	}
	return faster(ctx, dev, src, log)
}
