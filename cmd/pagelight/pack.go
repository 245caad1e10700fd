package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/engine/local"
	"github.com/pagelight/pagelight/internal/calibrate"
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/pack"
	"github.com/pagelight/pagelight/internal/weights"
)

type packCmd struct {
	Model string `arg:"" env:"PAGELIGHT_MODEL" help:"The model: a folder, a .gguf file, hf:ORG/NAME, or builtin."`
	Out   string `short:"o" placeholder:"DIR" help:"The bundle's folder. What is unfinished lies in DIR.packing; the same command goes on from there."`
	Force bool   `help:"Replace a bundle that is in DIR already."`
	Name  string `placeholder:"NAME" help:"The model's name in the bundle. Default: the one that it has."`

	Quant     string `enum:"none,q8,q4,q3,q2,ccq2.75,ccq2.5,ccq2,f8" default:"none" help:"Format of every matrix but embedding and LM head: none (as stored), q8, q4, q3, q2, ccq2.75, ccq2.5, ccq2 or f8."`
	Group     int    `placeholder:"N" help:"Weights that share a scale. Default: 32 for q8 and q4, 64 for q3 and q2, 128 for f8; ccq always has 64."`
	Embedding string `enum:"none,q8,q4,q3,q2,f8," default:"" placeholder:"QUANT" help:"Format of embedding and LM head. Default: q8, or none with --quant none."`
	Method    string `enum:"rtn,awq,gptq,awq+gptq," default:"" placeholder:"METHOD" help:"How: rtn (each group on its own), awq (channels scaled to what they read), gptq (later weights make up for errors) or awq+gptq. All but rtn need calibration. Default: gptq below 8 bits, else rtn."`
	Recipe    string `placeholder:"FILE" help:"YAML file with a format and a method for each class of matrices, instead of --quant, --group, --embedding and --method."`

	Analyze    bool    `help:"Write no bundle: measure what --quant does to each kind of matrix, and print a recipe that spends --target-bits where they help the most."`
	TargetBits float64 `default:"3" placeholder:"BITS" help:"For --analyze: bits a weight of the linear layers, scales included. Default: 3."`

	Calibration       string `placeholder:"FILE" help:"UTF-8 text to calibrate with, - is standard input. Default: text in English and Chinese that is part of this program."`
	CalibrationTokens int    `default:"32768" placeholder:"N" help:"Most tokens of it to use. Default: 32768."`
	Device            string `enum:"auto,gpu,cpu" default:"auto" env:"PAGELIGHT_DEVICE" help:"What runs the model for calibration: auto, gpu or cpu."`
	LogLevel          string `enum:"debug,info,warn,error" default:"warn" env:"PAGELIGHT_LOG_LEVEL" hidden:""`
}

// Help explains how to choose.
func (packCmd) Help() string {
	return `Writes a model as a bundle: the one format that server, page and browser cache share. With --quant it is made smaller.

  pagelight pack DIR --quant q4 -o small                 4 bits, embedding 8 bits
  pagelight pack model.gguf -o bundle                    as it is: quantized weights stay as they are
  pagelight pack DIR --analyze --quant ccq2 > mixed.yaml measure, and suggest a recipe of 3 bits a weight
  pagelight pack DIR --recipe mixed.yaml -o mixed        a format for each class of matrices

Bits a weight, scales included, at the default group: q8 9, q4 5, q3 3.5, q2 2.5, f8 8.25, ccq2.75 2.75, ccq2.5 2.5, ccq2 2.1.
Below 4 bits every model loses much; docs/quality.md has what was measured. Calibrate with text like what the model is to read.

A recipe is a list of rules, of which the first that matches a matrix counts:

  method: gptq                          # of rules that name none
  tensors:
    - match: [embed_tokens, lm_head]    # parts of names, or patterns with stars
      quant: q8
    - match: [down_proj, v_proj]
      layers: 0-3,7                     # optional
      quant: q4
      group: 64                         # optional
    - match: ["*"]
      quant: ccq2

Matrices that no rule matches stay as they are.`
}

// Run packs.
func (c *packCmd) Run(a *app) error {
	recipe, err := c.recipe()
	if err != nil {
		return usageError{err}
	}
	if c.Analyze && (c.Quant == "none" || c.Recipe != "" || c.Out != "" || c.Group != 0 || c.Method != "" || c.Embedding != "") {
		return usagef("pack: --analyze takes --quant, --target-bits and calibration, and no other flag that says what to write")
	}
	if c.Out == "" && !c.Analyze {
		return usagef("pack: -o is missing: the folder to write")
	}
	if c.CalibrationTokens < calibrate.Window {
		return usagef("pack: --calibration-tokens must be at least %d, got %d", calibrate.Window, c.CalibrationTokens)
	}
	src, err := local.OpenModel(c.Model, "none", nil)
	if err != nil {
		return modelError{err}
	}
	defer src.Close()
	windows, err := c.windows(a, src)
	if err != nil {
		return err
	}
	if c.Analyze {
		return c.analyze(a, src, windows)
	}
	if err := weights.MayWriteBundle(c.Out, c.Force); err != nil {
		if !c.Force {
			err = fmt.Errorf("%w; --force replaces a bundle", err)
		}
		return err
	}
	bar := newPackBar(a.stderr)
	defer bar.clear()
	err = pack.Run(a.ctx, pack.Options{
		Source: src, Recipe: recipe, Out: c.Out, Windows: windows,
		Bundle: weights.BundleOptions{Name: c.Name, Replace: c.Force},
		Device: func(ctx context.Context) (gpu.Device, error) {
			return local.OpenDevice(ctx, local.Options{Device: c.Device}, src)
		},
		Progress: bar.show,
		Note: func(text string) {
			bar.clear()
			fmt.Fprintf(a.stderr, "pagelight: %s\n", text)
		},
	})
	bar.clear()
	if err != nil {
		if _, statErr := os.Stat(filepath.Clean(c.Out) + ".packing"); statErr == nil && a.ctx.Err() != nil {
			fmt.Fprintf(a.stderr, "pagelight: what is finished lies in %s.packing; the same command goes on from there\n", filepath.Clean(c.Out))
		}
		if errors.Is(err, calibrate.ErrText) {
			err = modelError{fmt.Errorf("%w: this model has no tokenizer to read calibration text with; --method rtn needs none", err)}
		}
		return err
	}
	return c.report(a)
}

// analyze prints a recipe, with what was measured as comments.
func (c *packCmd) analyze(a *app, src weights.Source, windows [][]int32) error {
	bar := newPackBar(a.stderr)
	defer bar.clear()
	got, err := pack.Analyze(a.ctx, pack.Options{
		Source: src, Windows: windows, Progress: bar.show,
		Device: func(ctx context.Context) (gpu.Device, error) {
			return local.OpenDevice(ctx, local.Options{Device: c.Device}, src)
		},
	}, c.Quant, c.TargetBits)
	bar.clear()
	if errors.Is(err, calibrate.ErrText) {
		return modelError{fmt.Errorf("%w; a model without a tokenizer cannot be analyzed", err)}
	}
	if err != nil {
		return err
	}
	_, err = io.WriteString(a.stdout, got.String())
	return err
}

// report says what was written.
func (c *packCmd) report(a *app) error {
	out, err := weights.OpenBundle(a.ctx, weights.DirStore(c.Out))
	if err != nil {
		return err
	}
	defer out.Close()
	size, count, linear := pack.Sizes(out)
	_, err = fmt.Fprintf(a.stdout, "wrote %s: %s, %.2f bits a weight, %.2f in the linear layers\n", c.Out, byteSize(size), 8*float64(size)/float64(count), linear)
	return err
}

// recipe is what the flags ask for.
func (c *packCmd) recipe() (*pack.Recipe, error) {
	if c.Recipe == "" {
		embedding := c.Embedding
		if embedding == "" && c.Quant != "none" {
			embedding = "q8"
		}
		r, err := pack.Simple(c.Quant, c.Group, pack.Method(c.Method), embedding)
		if err != nil {
			return nil, fmt.Errorf("pack: %s", strings.TrimPrefix(err.Error(), "recipe: "))
		}
		return r, nil
	}
	if c.Quant != "none" || c.Group != 0 || c.Embedding != "" || c.Method != "" {
		return nil, errors.New("pack: --recipe says all that --quant, --group, --embedding and --method could say; give one or the others")
	}
	text, err := os.ReadFile(c.Recipe)
	if err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	r, err := pack.ParseRecipe(text)
	if err != nil {
		return nil, fmt.Errorf("pack: %s: %w", c.Recipe, err)
	}
	return r, nil
}

// windows is the calibration text as token ids. A model without a tokenizer has none.
func (c *packCmd) windows(a *app, src weights.Source) ([][]int32, error) {
	text := calibrate.Text
	if c.Calibration != "" {
		raw, err := readFile(a, c.Calibration)
		if err != nil {
			return nil, usageError{err}
		}
		if !utf8.Valid(raw) {
			return nil, usagef("pack: %s is not valid UTF-8", c.Calibration)
		}
		text = string(raw)
	}
	tok, err := engine.OpenText(a.ctx, src)
	if err != nil {
		return nil, modelError{err}
	}
	ids, err := tok.TokenizeBare(text, false)
	if errors.Is(err, engine.ErrNoTokenizer) && c.Calibration == "" { // what needs no calibration works all the same
		return nil, nil
	}
	if err != nil {
		return nil, modelError{err}
	}
	windows, err := calibrate.Windows(ids, min(calibrate.Window, src.Config().MaxPositions), c.CalibrationTokens)
	if err != nil {
		return nil, usageError{err}
	}
	return windows, nil
}

// packBar is one line on a terminal that says how far packing is; elsewhere it prints nothing.
type packBar struct {
	w     io.Writer
	on    bool
	last  time.Time
	phase string
	begun time.Time // of the phase
	first float64   // part that was done when it began
	width int
}

func newPackBar(w io.Writer) *packBar { return &packBar{w: w, on: isTerminal(w)} }

func (b *packBar) show(p pack.Progress) {
	if !b.on || p.Total <= 0 {
		return
	}
	part := float64(p.Done) / float64(p.Total)
	if p.Phase != b.phase {
		b.phase, b.begun, b.first = p.Phase, time.Now(), part
	} else if time.Since(b.last) < 100*time.Millisecond && p.Done < p.Total {
		return
	}
	b.last = time.Now()
	const cells = 24
	full := int(part * cells)
	line := fmt.Sprintf("%-11s [%s%s] %3.0f %%", p.Phase, strings.Repeat("#", full), strings.Repeat(".", cells-full), 100*part)
	if took := time.Since(b.begun); took > 2*time.Second && part > b.first && part < 1 {
		line += fmt.Sprintf(", %v left", time.Duration(float64(took)*(1-part)/(part-b.first)).Round(time.Second))
	}
	if p.What != "" {
		line += "  " + p.What
	}
	pad := strings.Repeat(" ", max(0, b.width-len(line)))
	b.width = len(line)
	fmt.Fprintf(b.w, "\r%s%s", line, pad)
}

func (b *packBar) clear() {
	if b.on && b.width > 0 {
		fmt.Fprintf(b.w, "\r%s\r", strings.Repeat(" ", b.width))
		b.width = 0
	}
}
