//go:build js && wasm

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pagelight/pagelight/internal/conformance"
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/cpu"
	"github.com/pagelight/pagelight/internal/gpu/webgpujs"
	"github.com/pagelight/pagelight/internal/openai"
)

type conformanceFields struct {
	Level  string `json:"level"`  // "quick" or "full"
	Device string `json:"device"` // "gpu" or "cpu"; "" is the adapter, or the processor where there is none
	Only   string `json:"only"`   // what the names of the cases begin with
}

type conformanceResult struct {
	Name    string  `json:"name"`
	OK      bool    `json:"ok"`
	Message string  `json:"message,omitempty"`
	MS      float64 `json:"ms"`
}

type conformanceMessage struct {
	simpleMessage
	Adapter gpu.Info            `json:"adapter"`
	Results []conformanceResult `json:"results"`
}

// conformance compares the kernels with their reference on a device of its own, so that it does not disturb the engine.
func (w *worker) conformance(ctx context.Context, id string, f conformanceFields) error {
	level := conformance.Quick
	switch f.Level {
	case "", "quick":
	case "full":
		level = conformance.Full
	default:
		return openai.NewError(400, openai.CodeInvalidValue, "level", fmt.Sprintf("'level' must be quick or full, not %.40q", f.Level))
	}
	dev, err := conformanceDevice(ctx, f.Device)
	if err != nil {
		return err
	}
	defer dev.Close()
	out := conformanceMessage{simpleMessage: simpleMessage{typeConformance, id}, Adapter: dev.Info()}
	cases := slices.DeleteFunc(conformance.Cases(level), func(c conformance.Case) bool { return !strings.HasPrefix(c.Name, f.Only) })
	for i, c := range cases {
		w.say(progressMessage{simpleMessage{"progress", id}, typeConformance, int64(i), int64(len(cases)), c.Name})
		webgpujs.Turn()
		start := time.Now()
		err := c.Run(ctx, dev)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r := conformanceResult{Name: c.Name, OK: err == nil, MS: float64(time.Since(start).Microseconds()) / 1e3}
		if err != nil {
			r.Message = err.Error()
		}
		out.Results = append(out.Results, r)
		if errors.Is(err, gpu.ErrDeviceLost) {
			break // the rest would fail in the same way
		}
	}
	w.say(out)
	return nil
}

func conformanceDevice(ctx context.Context, name string) (gpu.Device, error) {
	switch name {
	case "":
		dev, err := openWebGPU(ctx)
		if errors.Is(err, gpu.ErrNoAdapter) {
			return cpu.Open(cpu.Options{Yield: webgpujs.Turn})
		}
		return dev, err
	case "gpu":
		return openWebGPU(ctx)
	case "cpu":
		return cpu.Open(cpu.Options{Yield: webgpujs.Turn})
	}
	return nil, openai.NewError(400, openai.CodeInvalidValue, "device", fmt.Sprintf("'device' must be gpu or cpu, not %.40q", name))
}
