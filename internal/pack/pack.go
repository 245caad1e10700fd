package pack

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/pagelight/pagelight/internal/calibrate"
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
)

// Options say what to pack and how.
type Options struct {
	Source weights.Source
	Recipe *Recipe
	Out    string // the bundle's folder; what is unfinished lies in Out + ".packing"
	Bundle weights.BundleOptions

	// Windows are calibration text as token ids; they may be empty where no matrix needs any.
	Windows [][]int32
	// Device is what the calibrated model runs on. It is opened when it is needed, and closed here.
	Device func(ctx context.Context) (gpu.Device, error)

	Progress func(Progress)    // may be nil
	Note     func(text string) // hears of what the recipe asks for and does not get; may be nil
}

// Progress says how far packing has come.
type Progress struct {
	Phase       string // "reading", "calibrating", "quantizing" or "writing"
	What        string // a tensor or a range of layers
	Done, Total int64  // bytes, tokens, weights or bytes
}

// momentBytes bounds the second moments that are kept at a time: layers are calibrated in runs that fit, each with a pass over the
// text of its own.
const momentBytes = 512 << 20

// pieceWeights is how many weights are quantized at a time.
const pieceWeights = 8 << 20

// version changes whenever the same options would give other bytes.
const version = 1

// packer is one run.
type packer struct {
	Options
	targets map[string]Target
	order   []Target
	work    *work
	done    map[string]*finished
	inspect func(ctx context.Context, t Target, m *calibrate.Moment) error // sees every calibrated matrix; may be nil

	quantized, total int64 // weights
}

// Run packs a model. When it is interrupted, the same options go on from what was finished; the result has the same bytes as
// without the interruption.
func Run(ctx context.Context, o Options) (err error) {
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if o.Note == nil {
		o.Note = func(string) {}
	}
	if err := weights.MayWriteBundle(o.Out, o.Bundle.Replace); err != nil {
		return err
	}
	p := &packer{Options: o, targets: map[string]Target{}, done: map[string]*finished{}}
	if p.order, err = o.Recipe.Plan(o.Source, o.Note); err != nil {
		return err
	}
	for _, t := range p.order {
		p.targets[t.Name] = t
		if !t.Kept() {
			p.total += int64(t.Rows) * int64(t.K)
		}
	}
	src := o.Source
	if p.total > 0 {
		key, err := p.key(ctx)
		if err != nil {
			return err
		}
		if p.work, err = openWork(workDir(o.Out), key); err != nil {
			return err
		}
		if err := p.quantize(ctx); err != nil {
			return err
		}
		out := &packed{Source: o.Source, tensors: p.done}
		defer out.release()
		src = out
	}
	if o.Bundle.Summary == "" {
		o.Bundle.Summary = p.summary()
	}
	o.Bundle.Temp = filepath.Join(workDir(o.Out), "bundle")
	if err := weights.WriteBundle(ctx, src, o.Out, o.Bundle, func(done, total int64) {
		o.Progress(Progress{Phase: "writing", Done: done, Total: total})
	}); err != nil {
		return err
	}
	if err := os.RemoveAll(workDir(o.Out)); err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	return nil
}

// workDir is where what is unfinished lies.
func workDir(out string) string { return filepath.Clean(out) + ".packing" }

// summary says in words how the weights were made.
func (p *packer) summary() string {
	type how struct {
		f quant.Format
		m Method
	}
	count := map[how]int{}
	var kinds []how
	for _, t := range p.order {
		h := how{t.Format, t.Method}
		if count[h] == 0 {
			kinds = append(kinds, h)
		}
		count[h]++
	}
	text := ""
	for i, h := range kinds {
		if i > 0 {
			text += "; "
		}
		method := string(h.m)
		if h.m == "" {
			method = "as it was"
		}
		text += fmt.Sprintf("%v (%s): %d matrices", h.f, method, count[h])
	}
	return text
}

// key is a hash of all that decides the bytes of tensors.
func (p *packer) key(ctx context.Context) (string, error) {
	h := sha256.New()
	plan, err := json.Marshal(struct {
		Version int
		Config  *weights.Config
		Targets []Target
		Windows [][]int32
	}{version, p.Source.Config(), p.order, p.Windows})
	if err != nil {
		return "", fmt.Errorf("pack: %w", err)
	}
	h.Write(plan)
	done, total := int64(0), p.Source.Bytes()
	for _, s := range weights.Tensors(p.Source.Config()) {
		n, err := hashTensor(ctx, h, p.Source, s)
		if err != nil {
			return "", err
		}
		done += n
		p.Progress(Progress{Phase: "reading", What: s.Name, Done: done, Total: total})
		if err := ctx.Err(); err != nil {
			return "", fmt.Errorf("pack: %w", err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// hashTensor adds a tensor's bytes to a hash and says how many there were.
func hashTensor(ctx context.Context, h hash.Hash, src weights.Source, s weights.Shape) (int64, error) {
	if s.Vector {
		v, err := src.Vector(ctx, s.Name)
		if err != nil {
			return 0, err
		}
		return 4 * int64(len(v)), binary.Write(h, binary.LittleEndian, v)
	}
	info, err := src.Info(s.Name)
	if err != nil {
		return 0, err
	}
	n := int64(0)
	for lo, hi := range weights.Pieces(src, s.Name, info, 4<<20) {
		rows, err := src.Rows(ctx, s.Name, lo, hi)
		if err != nil {
			return 0, err
		}
		for _, part := range []weights.Segment{rows.Data, rows.Scales} {
			raw, err := part.Load(nil)
			if err != nil {
				return 0, fmt.Errorf("pack: tensor %q: %w", s.Name, err)
			}
			h.Write(raw)
			n += int64(len(raw))
		}
	}
	return n, nil
}

// quantize makes every tensor that is to change.
func (p *packer) quantize(ctx context.Context) error {
	var layers []int // that still have to be calibrated
	for _, t := range p.order {
		if t.Kept() {
			continue
		}
		found, err := p.work.find(t.Name, t.Rows, t.K, t.Format)
		if err != nil {
			return err
		}
		if found != nil {
			p.finish(t, found)
		} else if l := layerOf(t.Name); t.Method != RTN && l >= 0 && !slices.Contains(layers, l) {
			layers = append(layers, l)
		}
	}
	// A layer whose channels are scaled also has norms and biases of its own making.
	for l := range p.Source.Config().NumLayers {
		if p.scaledLayer(l) && !slices.Contains(layers, l) {
			missing, err := p.findVectors(l)
			if err != nil {
				return err
			}
			if missing {
				layers = append(layers, l)
			}
		}
	}
	slices.Sort(layers)
	if len(layers) > 0 {
		if err := p.calibrated(ctx, layers); err != nil {
			return err
		}
	}
	for _, t := range p.order {
		if !t.Kept() && p.done[t.Name] == nil {
			if err := p.tensor(ctx, t, p.Source, nil, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *packer) finish(t Target, f *finished) {
	p.done[t.Name] = f
	p.quantized += int64(t.Rows) * int64(t.K)
	p.Progress(Progress{Phase: "quantizing", What: t.Name, Done: p.quantized, Total: p.total})
}

// scaledLayer says whether a matrix of the layer is quantized by a method that scales channels.
func (p *packer) scaledLayer(layer int) bool {
	return slices.ContainsFunc(p.order, func(t Target) bool { return layerOf(t.Name) == layer && !t.Kept() && t.Method.scales() })
}

// findVectors looks for the vectors of a layer that scaling made, and says whether they are missing.
func (p *packer) findVectors(layer int) (missing bool, err error) {
	for _, s := range weights.Tensors(p.Source.Config()) {
		if !s.Vector || layerOf(s.Name) != layer {
			continue
		}
		f, err := p.work.find(s.Name, 1, s.K, quant.Format{Kind: quant.F32})
		if err != nil || f == nil {
			return true, err
		}
		p.done[s.Name] = f
	}
	return false, nil
}

// calibrated makes the matrices of layers that calibration has something to say about.
func (p *packer) calibrated(ctx context.Context, layers []int) (err error) {
	if len(p.Windows) == 0 {
		return fmt.Errorf("pack: %w: %s needs some", calibrate.ErrText, p.order[slices.IndexFunc(p.order, func(t Target) bool { return !t.Kept() && t.Method != RTN })].Method)
	}
	dev, err := p.Device(ctx)
	if err != nil {
		return err
	}
	defer dev.Close()
	p.Progress(Progress{Phase: "calibrating", Total: 1})
	c, err := calibrate.Open(ctx, dev, p.Source, p.Windows)
	if err != nil {
		return err
	}
	defer c.Close()
	size := map[int]int64{} // of a layer's moments
	for _, names := range c.Inputs() {
		if k := int64(p.targets[names[0]].K); k <= calibrate.MaxMoment {
			size[layerOf(names[0])] += 8 * k * k
		} else {
			size[layerOf(names[0])] += 8 * k
		}
	}
	for len(layers) > 0 {
		n, sum := 1, size[layers[0]]
		for n < len(layers) && sum+size[layers[n]] <= momentBytes {
			sum += size[layers[n]]
			n++
		}
		if err := p.run(ctx, c, layers[:n]); err != nil {
			return err
		}
		layers = layers[n:]
	}
	return nil
}

// run calibrates some layers with one pass over the text, and quantizes them.
func (p *packer) run(ctx context.Context, c *calibrate.Calibrator, layers []int) error {
	what := fmt.Sprintf("layers %d to %d", layers[0], layers[len(layers)-1])
	moments, err := c.Collect(ctx, func(name string) bool {
		return slices.Contains(layers, layerOf(name))
	}, func(done, total int) {
		p.Progress(Progress{Phase: "calibrating", What: what, Done: int64(done), Total: int64(total)})
	})
	if err != nil {
		return err
	}
	for _, l := range layers {
		if err := p.layer(ctx, l, moments); err != nil {
			return err
		}
	}
	return nil
}

// layer scales the channels of one layer where that is asked for, and quantizes its matrices.
func (p *packer) layer(ctx context.Context, layer int, moments map[string]*calibrate.Moment) error {
	src, by := p.Source, weights.Scaling{}
	if p.scaledLayer(layer) {
		format := func(name string) (quant.Format, bool) {
			t := p.targets[name]
			return t.Format, !t.Kept() && t.Method.scales()
		}
		if _, err := calibrate.Channels(ctx, p.Source, layer, moments, format, &by); err != nil {
			return err
		}
		src = weights.Scaled(p.Source, by)
		for _, s := range weights.Tensors(src.Config()) {
			if s.Vector && layerOf(s.Name) == layer {
				if err := p.vector(ctx, src, s.Name); err != nil {
					return err
				}
			}
		}
	}
	for _, t := range p.order {
		if layerOf(t.Name) == layer && !t.Kept() && p.done[t.Name] == nil {
			if p.inspect != nil {
				if err := p.inspect(ctx, t, moments[t.Name]); err != nil {
					return err
				}
			}
			if err := p.tensor(ctx, t, src, moments[t.Name], by.Columns[t.Name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// vector stores a vector as scaling made it.
func (p *packer) vector(ctx context.Context, src weights.Source, name string) error {
	v, err := src.Vector(ctx, name)
	if err != nil {
		return err
	}
	words := make([]uint32, len(v))
	f := quant.Format{Kind: quant.F32}
	quant.Encode(f, words, v)
	w, err := p.work.create(name, 1, len(v), f)
	if err != nil {
		return err
	}
	defer w.discard()
	if err := w.add(words, nil); err != nil {
		return err
	}
	p.done[name], err = w.close()
	return err
}

// tensor quantizes one matrix of src, whose columns were multiplied by factors. Without a moment its method is RTN.
func (p *packer) tensor(ctx context.Context, t Target, src weights.Source, m *calibrate.Moment, factors []float32) error {
	order, err := src.Order(ctx, t.Name)
	if err != nil {
		return err
	}
	if order != nil {
		return fmt.Errorf("pack: tensor %q is stored with its columns in another order (GPTQ with desc_act); it can only be kept: give it quant none", t.Name)
	}
	encode, err := p.encoder(t, m, factors)
	if err != nil {
		return err
	}
	w, err := p.work.create(t.Name, t.Rows, t.K, t.Format)
	if err != nil {
		return err
	}
	defer w.discard()
	for lo, step := 0, max(1, pieceWeights/t.K); lo < t.Rows; lo += step {
		n := min(step, t.Rows-lo)
		values, err := weights.Floats(ctx, src, t.Name, lo, lo+n)
		if err != nil {
			return err
		}
		data, scales := make([]uint32, n*t.Format.RowWords(t.K)), make([]uint32, n*t.Format.ScaleWords(t.K))
		if err := encode(values, data, scales); err != nil {
			return fmt.Errorf("pack: tensor %q, from row %d on: %w", t.Name, lo, err)
		}
		if err := w.add(data, scales); err != nil {
			return err
		}
		p.Progress(Progress{Phase: "quantizing", What: t.Name, Done: p.quantized + int64(lo+n)*int64(t.K), Total: p.total})
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("pack: %w", err)
		}
	}
	f, err := w.close()
	if err != nil {
		return err
	}
	p.finish(t, f)
	return nil
}

// encoder is what quantizes rows of a matrix.
func (p *packer) encoder(t Target, m *calibrate.Moment, factors []float32) (func(w []float32, data, scales []uint32) error, error) {
	var s quant.Search
	switch {
	case t.Method == RTN:
	case m == nil:
		p.Note(fmt.Sprintf("%s: calibration sees no input of it; its method is rtn", t.Name))
	default:
		var err error
		s.Feedback = t.Method.feedback() && len(m.Square) > m.K
		if s.Feedback {
			s.Metric, err = m.Metric()
		} else {
			s.Metric, err = m.Diagonal()
		}
		if err != nil {
			return nil, fmt.Errorf("pack: tensor %q: %w", t.Name, err)
		}
		if t.Method.feedback() && !s.Feedback {
			p.Note(fmt.Sprintf("%s: it has %d columns, more than the %d that error feedback is for; its errors are only weighed", t.Name, m.K, calibrate.MaxMoment))
		}
		if factors != nil {
			s.Metric = s.Metric.Scaled(factors)
		}
	}
	if s.Metric == nil && t.Format.Quantizes() {
		return func(w []float32, data, scales []uint32) error { return quantizeRows(t.Format, w, t.K, data, scales) }, nil
	}
	return func(w []float32, data, scales []uint32) error { return s.Quantize(t.Format, w, t.K, data, scales) }, nil
}

// quantizeRows is quant.QuantizeTo on all processors.
func quantizeRows(f quant.Format, w []float32, k int, data, scales []uint32) error {
	rows := len(w) / k
	workers := min(runtime.GOMAXPROCS(0), rows)
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			lo, hi := i*rows/workers, (i+1)*rows/workers
			errs[i] = quant.QuantizeTo(f, w[lo*k:hi*k], k, data[lo*f.RowWords(k):hi*f.RowWords(k)], scales[lo*f.ScaleWords(k):hi*f.ScaleWords(k)])
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
