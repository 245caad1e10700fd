package pack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/pagelight/pagelight/internal/calibrate"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
)

// Class is what was measured of the matrices of one kind, over all layers.
type Class struct {
	Name    string // self_attn.q_proj
	Weights int64
	Loss    float64 // by how much the mean negative log-likelihood rises when these alone are quantized
}

// Analysis says where quantizing hurts, and what to do about it.
type Analysis struct {
	Quant    string
	Base     float64 // mean negative log-likelihood of the model as it is
	Tokens   int     // that were scored
	Classes  []Class
	All      float64 // by how much it rises when all are quantized
	Choices  []Choice
	Bits     float64 // a weight of the linear layers, of what was chosen
	Expected float64 // by how much the choice is expected to raise it, were losses to add up
}

// Choice is the format of one matrix.
type Choice struct {
	Target
	Quant string
	Group int
}

// analyzeRows is how many rows of a matrix tell what a format would lose.
const analyzeRows = 64

// evalWindows is the most windows that losses are measured over.
const evalWindows = 8

// ladder are the formats that a matrix may rise to.
var ladder = []struct {
	quant string
	group int
}{{"ccq2", 0}, {"q2", 64}, {"ccq2.75", 0}, {"q3", 128}, {"q3", 64}, {"q4", 64}, {"q4", 32}, {"q8", 32}}

// option is a format of the ladder for one matrix.
type option struct {
	choice     Choice
	bits, loss float64
}

// analyzer measures what one format does to each matrix.
type analyzer struct {
	*packer
	low    string
	target float64
	errs   map[string][]option // by matrix; loss is the error under calibration, so far
}

// Analyze quantizes the linear layers of a model as the recipe's last rule says, kind by kind, and measures by how much each alone raises
// the loss on windows kept aside for that. Then it chooses a format for each matrix, so that the linear layers have at most targetBits
// bits a weight and lose the least: what a matrix loses in another format is taken to be in proportion to its error under calibration.
// Nothing is written but to a folder for the time being. Out and Bundle of the options are not used.
func Analyze(ctx context.Context, o Options, name string, targetBits float64) (_ *Analysis, err error) {
	if len(o.Windows) < 4 {
		return nil, fmt.Errorf("pack: %w: it has %d windows, 4 are needed to calibrate with some and measure with others", calibrate.ErrText, len(o.Windows))
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if o.Note == nil {
		o.Note = func(string) {}
	}
	dir, err := os.MkdirTemp("", "pagelight-analyze-*")
	if err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var eval [][]int32
	o.Windows, eval = split(o.Windows)
	o.Recipe = &Recipe{Method: GPTQ, Rules: []Rule{{Match: []string{"embed_tokens", "lm_head"}, Quant: "none"}, {Match: []string{"*"}, Quant: name}}}
	p := &packer{Options: o, targets: map[string]Target{}, done: map[string]*finished{}}
	a := &analyzer{packer: p, low: name, target: targetBits, errs: map[string][]option{}}
	p.inspect = a.inspect
	if p.order, err = o.Recipe.Plan(o.Source, o.Note); err != nil {
		return nil, err
	}
	for _, t := range p.order {
		p.targets[t.Name] = t
		if !t.Kept() {
			p.total += int64(t.Rows) * int64(t.K)
		}
	}
	if p.total == 0 {
		return nil, fmt.Errorf("pack: the model is quantized already, and %s would make nothing of it smaller", name)
	}
	if p.work, err = openWork(dir, ""); err != nil {
		return nil, err
	}
	if err := p.quantize(ctx); err != nil {
		return nil, err
	}
	out := &Analysis{Quant: name}
	for _, w := range eval {
		out.Tokens += len(w) - 1
	}
	if err := a.measure(ctx, out, eval); err != nil {
		return nil, err
	}
	a.choose(out)
	return out, nil
}

// split keeps some windows aside.
func split(windows [][]int32) (calibration, eval [][]int32) {
	n := min(evalWindows, len(windows)/4)
	for i, w := range windows {
		if i*n/len(windows) != (i+1)*n/len(windows) {
			eval = append(eval, w)
		} else {
			calibration = append(calibration, w)
		}
	}
	return calibration, eval
}

// inspect finds the error of a matrix in every format that it could have.
func (a *analyzer) inspect(ctx context.Context, t Target, m *calibrate.Moment) error {
	step := max(1, (t.Rows+analyzeRows-1)/analyzeRows)
	var w []float32
	rows := 0
	for r := 0; r < t.Rows; r += step {
		row, err := weights.Floats(ctx, a.Source, t.Name, r, r+1)
		if err != nil {
			return err
		}
		w = append(w, row...)
		rows++
	}
	metric, err := rowMetric(m, t.K)
	if err != nil {
		return fmt.Errorf("pack: tensor %q: %w", t.Name, err)
	}
	lowBits := bits(t.Format, t.Rows, t.K)
	for i, l := range append(slices.Clone(ladder), struct {
		quant string
		group int
	}{a.low, t.Format.Group}) {
		rule := Rule{Quant: l.quant, Group: l.group}
		f, _ := rule.format()
		size := bits(f, t.Rows, t.K)
		if f.Check(t.K) != nil || i < len(ladder) && (size <= lowBits || size >= bits(t.Stored, t.Rows, t.K)) {
			continue
		}
		loss, err := formatLoss(f, w, t.K, metric)
		if err != nil {
			return fmt.Errorf("pack: tensor %q: %w", t.Name, err)
		}
		target := t
		target.Format = f
		a.errs[t.Name] = append(a.errs[t.Name], option{Choice{target, l.quant, l.group}, float64(size), loss * float64(t.Rows) / float64(rows)})
	}
	slices.SortStableFunc(a.errs[t.Name], func(x, y option) int { return cmp.Compare(x.bits, y.bits) })
	return ctx.Err()
}

// rowMetric is a moment's metric; without a moment, all errors count the same.
func rowMetric(m *calibrate.Moment, k int) (*quant.Metric, error) {
	if m == nil {
		return quant.DiagonalMetric(slices.Repeat([]float64{1}, k))
	}
	return m.Metric()
}

// formatLoss is the error of rows in a format, with error feedback where it is possible.
func formatLoss(f quant.Format, w []float32, k int, m *quant.Metric) (float64, error) {
	rows := len(w) / k
	data, scales := make([]uint32, rows*f.RowWords(k)), make([]uint32, rows*f.ScaleWords(k))
	s := quant.Search{Metric: m, Feedback: m.Full()}
	if err := s.Quantize(f, w, k, data, scales); err != nil {
		return 0, err
	}
	sum := 0.0
	stored, e := make([]float32, k), make([]float64, k)
	for r := range rows {
		quant.Decode(f, data[r*f.RowWords(k):], scales[r*f.ScaleWords(k):], k, stored)
		for i, v := range stored {
			e[i] = float64(w[r*k+i]) - float64(v)
		}
		sum += m.Loss(e)
	}
	return sum, nil
}

// measure computes the loss of the model as it is, with each kind of matrix quantized alone, and with all.
func (a *analyzer) measure(ctx context.Context, out *Analysis, eval [][]int32) error {
	dev, err := a.Device(ctx)
	if err != nil {
		return err
	}
	defer dev.Close()
	classes := map[string]int{}
	for _, t := range a.order {
		if t.Kept() {
			continue
		}
		c := classOf(t.Name)
		i, ok := classes[c]
		if !ok {
			i = len(out.Classes)
			classes[c] = i
			out.Classes = append(out.Classes, Class{Name: c})
		}
		out.Classes[i].Weights += int64(t.Rows) * int64(t.K)
	}
	runs := int64(len(out.Classes) + 2)
	loss := func(i int, what string, use func(name string) bool) (float64, error) {
		a.Progress(Progress{Phase: "measuring", What: what, Done: int64(i), Total: runs})
		src := &packed{Source: a.Source, tensors: map[string]*finished{}}
		defer src.release()
		for name, f := range a.done {
			if use(name) {
				src.tensors[name] = f
			}
		}
		c, err := calibrate.Open(ctx, dev, src, eval)
		if err != nil {
			return 0, err
		}
		defer c.Close()
		return c.Loss(ctx)
	}
	if out.Base, err = loss(0, "as it is", func(string) bool { return false }); err != nil {
		return err
	}
	for i := range out.Classes {
		c := &out.Classes[i]
		l, err := loss(i+1, c.Name, func(name string) bool { return classOf(name) == c.Name })
		if err != nil {
			return err
		}
		c.Loss = l - out.Base
	}
	all, err := loss(int(runs)-1, "all", func(string) bool { return true })
	out.All = all - out.Base
	return err
}

// classOf is a tensor's name without its layer.
func classOf(name string) string {
	parts := strings.Split(strings.TrimSuffix(name, ".weight"), ".")
	if layerOf(name) >= 0 {
		parts = parts[3:]
	}
	if len(parts) > 2 && parts[1] == "experts" { // mlp.experts.7.up_proj
		parts = slices.Delete(parts, 2, 3)
	}
	return strings.Join(parts, ".")
}

// choose raises matrices from the lowest format, always the one that gains the most for its bits, until nothing more fits.
func (a *analyzer) choose(out *Analysis) {
	loss, errs := map[string]float64{}, map[string]float64{} // by class
	for _, c := range out.Classes {
		// What is within the noise still counts a little, so that bits that are left go somewhere.
		loss[c.Name] = max(c.Loss, 0.01*out.All*float64(c.Weights)/float64(a.total), 1e-9)
	}
	var names []string
	spent, count := 0.0, 0.0
	level := map[string]int{}
	for _, t := range a.order {
		if o := a.errs[t.Name]; len(o) > 0 {
			names = append(names, t.Name)
			errs[classOf(t.Name)] += o[0].loss
			spent += o[0].bits
			count += float64(t.Rows) * float64(t.K)
		}
	}
	scaled := func(name string, o option) float64 {
		return loss[classOf(name)] * o.loss / max(errs[classOf(name)], math.SmallestNonzeroFloat64)
	}
	for {
		best, to, gain := "", 0, 0.0
		for _, n := range names {
			at := a.errs[n][level[n]]
			for i := level[n] + 1; i < len(a.errs[n]); i++ {
				o := a.errs[n][i]
				if more := o.bits - at.bits; spent+more <= a.target*count {
					if g := (scaled(n, at) - scaled(n, o)) / more; g > gain {
						best, to, gain = n, i, g
					}
				}
			}
		}
		if best == "" {
			break
		}
		spent += a.errs[best][to].bits - a.errs[best][level[best]].bits
		level[best] = to
	}
	for _, n := range names {
		o := a.errs[n][level[n]]
		out.Choices = append(out.Choices, o.choice)
		out.Expected += scaled(n, o)
	}
	out.Bits = spent / max(count, 1)
}

// String is the analysis as a recipe, with what was measured as comments before it.
func (a *Analysis) String() string {
	var b strings.Builder
	total := int64(0)
	for _, c := range a.Classes {
		total += c.Weights
	}
	percent := func(loss float64) string { return fmt.Sprintf("%+7.2f %%", 100*(math.Exp(loss)-1)) }
	fmt.Fprintf(&b, "# Perplexity %.4f as it is, over %d tokens; with matrices of one kind as %s:\n#\n", math.Exp(a.Base), a.Tokens, a.Quant)
	fmt.Fprintf(&b, "# %-24s %10s %12s\n", "matrices", "of weights", "perplexity")
	classes := slices.Clone(a.Classes)
	slices.SortStableFunc(classes, func(x, y Class) int { return cmp.Compare(y.Loss, x.Loss) })
	for _, c := range classes {
		fmt.Fprintf(&b, "# %-24s %8.1f %% %12s\n", c.Name, 100*float64(c.Weights)/float64(total), percent(c.Loss))
	}
	fmt.Fprintf(&b, "# %-24s %10s %12s\n#\n", "all", "", percent(a.All))
	fmt.Fprintf(&b, "# The recipe below has %.3f bits a weight in the linear layers; were losses to add up, it would cost %s.\n",
		a.Bits, strings.TrimSpace(percent(a.Expected)))
	b.WriteString("method: gptq\ntensors:\n- {match: [embed_tokens, lm_head], quant: q8}\n")
	type key struct {
		class, quant string
		group        int
	}
	layers := map[key][]int{}
	var keys []key
	for _, c := range a.Choices {
		k := key{classOf(c.Name), c.Quant, c.Group}
		if layers[k] == nil {
			keys = append(keys, k)
		}
		layers[k] = append(layers[k], layerOf(c.Name))
	}
	slices.SortStableFunc(keys, func(x, y key) int { return cmp.Compare(x.class, y.class) })
	for _, k := range keys {
		group := ""
		if k.group > 0 && !strings.HasPrefix(k.quant, "ccq") {
			group = fmt.Sprintf(", group: %d", k.group)
		}
		fmt.Fprintf(&b, "- {match: [%s], layers: %q, quant: %s%s}\n", classPattern(k.class), ranges(layers[k]), k.quant, group)
	}
	return b.String()
}

// classPattern is a pattern for a class: its name, or one with a star for the number of an expert.
func classPattern(class string) string {
	if first, last, ok := strings.Cut(class, ".experts."); ok && !strings.Contains(first, "shared") {
		return fmt.Sprintf("%q", "*."+first+".experts.*."+last+".weight")
	}
	return class
}

// ranges writes sorted numbers as 0-3,7.
func ranges(numbers []int) string {
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	var parts []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		part := strconv.Itoa(numbers[i])
		if j > i {
			part += "-" + strconv.Itoa(numbers[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}
