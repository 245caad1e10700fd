package bench

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/cpu"
	"github.com/pagelight/pagelight/internal/weights"
)

const tiny = "../model/testdata/ernie"

// broken is a source one of whose weights is not what it was.
type broken struct {
	weights.Source
	name string
}

func (b broken) Vector(ctx context.Context, name string) ([]float32, error) {
	v, err := b.Source.Vector(ctx, name)
	if name == b.name {
		v = slices.Clone(v)
		for i := range v {
			v[i] = -v[i]
		}
	}
	return v, err
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// open opens the tiny model on the processor as b wants it, with a weight broken if one is named.
func open(t *testing.T, b *Bench, kv engine.KVType, breaks string) *engine.Engine {
	t.Helper()
	src := must(weights.OpenDir(tiny))(t)
	if breaks != "" {
		src = broken{src, breaks}
	}
	dev := must(cpu.Open(cpu.Options{}))(t)
	eng := must(engine.Open(t.Context(), b.Configure(engine.Config{Device: dev, Source: src, KV: kv, GPUMemory: 64 << 20})))(t)
	t.Cleanup(func() { _ = eng.Close() })
	return eng
}

// small is a bench of a second or two.
func small(t *testing.T) *Bench {
	t.Helper()
	return must(New(Options{Prompts: []int{20}, Gens: []int{6}, Depths: []int{0, 30}, Batches: []int{1, 4}, Repetitions: 2}))(t)
}

func TestRunMeasuresWhatWasAskedFor(t *testing.T) {
	b := small(t)
	eng := open(t, b, engine.KVF16, "")
	run, err := b.Run(t.Context(), eng, Device{CopyGBps: 10, DispatchUS: 1})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range run.Tests {
		names = append(names, x.Name)
		s := x.Speed
		if g := x.Stages; g == nil || g.Dispatches < 30 || g.Submits <= 0 || g.ReadBacks <= 0 || g.BytesRead < 1 || g.EncodeUS <= 0 || g.WaitUS <= 0 || g.HostUS < 0 {
			t.Errorf("%s: stages %+v", x.Name, g)
		} else if sum := g.EncodeUS + g.WaitUS + g.HostUS; x.Kind == KindPrefill && (sum < 900*x.LatencyMS || sum > 1100*x.LatencyMS) {
			t.Errorf("%s: the stages are %g us, a prompt takes %g ms", x.Name, sum, x.LatencyMS)
		}
		if len(s.Samples) != 2 || s.Min <= 0 || s.Min > s.Median || s.Median > s.Max || x.LatencyMS <= 0 {
			t.Errorf("%s: %+v, %g ms", x.Name, s, x.LatencyMS)
		}
	}
	want := []string{"pp20", "tg6", "tg6 @ d30", "b1 (pp128+tg64)", "b4 (pp128+tg64)"}
	if !slices.Equal(names, want) {
		t.Errorf("tests %q, want %q", names, want)
	}
	if c := run.Check; c.Verdict != Passed || c.KnownAnswer || c.LeastMargin != 0.15 || !strings.Contains(c.Source, "no known answers") {
		t.Errorf("check %+v", c)
	}
	for setting, name := range map[string]string{
		"logits": "block", "batch 1": "block", "batch 4": "block", "b4 (pp128+tg64)": "block", "pp20": "token by token", "tg6 @ d30": "own logits",
	} {
		i := slices.IndexFunc(run.Check.Cases, func(c CheckCase) bool { return c.Setting == setting && c.Case == name })
		if i < 0 || run.Check.Cases[i].Compared < 1 || setting == "pp20" && run.Check.Cases[i].Answers != 3 {
			t.Errorf("nothing was checked at %s: %+v", setting, run.Check.Cases)
		}
	}
	k := run.Token
	if k == nil || k.Test != "tg6" || k.Dispatches == 0 || k.Bytes < run.Model.WeightBytes/2 {
		t.Fatalf("token %+v", k)
	}
	sum := 0.0
	for _, p := range k.Parts {
		sum += p.US
	}
	if d := sum - k.US; d > 0.01 || d < -0.01 {
		t.Errorf("the parts of a token are %g us, the token %g us", sum, k.US)
	}
	if want := max(float64(k.Bytes)/10e3, float64(k.Dispatches)) / k.US; k.Roofline < 0.999*want || k.Roofline > 1.001*want {
		t.Errorf("roofline %g, want %g", k.Roofline, want)
	}
	if len(run.Profiles) != 4 || run.Profiles[2].Rows != 4 || run.Profiles[0].Note == "" {
		t.Errorf("profiles %+v", run.Profiles)
	}
	if run.Profiles[0].Depth >= run.Profiles[1].Depth || bytesOf(&run.Profiles[0]) >= bytesOf(&run.Profiles[1]) {
		t.Errorf("a deeper step reads %d bytes, one that is less deep %d", bytesOf(&run.Profiles[1]), bytesOf(&run.Profiles[0]))
	}
	r := Report{Schema: Schema, Tool: "pagelight bench", Version: "v1", Adapter: eng.Info().Adapter, Options: b.o, Runs: []Run{run}}
	checkWriters(t, &r)
}

func bytesOf(p *Profile) (n int64) {
	for _, k := range p.Kernels {
		n += k.Bytes
	}
	return n
}

// checkWriters holds the shapes of what is printed.
func checkWriters(t *testing.T, r *Report) {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if lines[0] != "| model | size | params | backend | kv | test | t/s | min..max | ms |" || !strings.Contains(lines[2], "| pp20 |") || !strings.Contains(lines[2], " ± ") {
		t.Errorf("Markdown begins with\n%s", strings.Join(lines[:3], "\n"))
	}
	columns := 0
	for _, l := range lines {
		if n := strings.Count(l, "|"); n != columns && columns > 0 && n > 0 {
			t.Errorf("%q has %d columns, the table %d", l, n-1, columns-1)
		}
		if columns = strings.Count(l, "|"); columns > 0 && !strings.HasSuffix(l, "|") {
			t.Errorf("%q is no row", l)
		}
	}
	b.Reset()
	if err := r.WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	rows := must(csv.NewReader(&b).ReadAll())(t)
	if len(rows) != 1+len(r.Runs[0].Tests) || rows[1][10] != "pp20" || rows[1][15] != "1" {
		t.Errorf("CSV %q", rows)
	}
	b.Reset()
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if len(back.Runs) != 1 || back.Runs[0].Tests[0].Speed.Median != r.Runs[0].Tests[0].Speed.Median {
		t.Errorf("JSON gives back %+v", back)
	}
	for _, field := range []string{`"schema": 1`, `"tokens_per_second"`, `"n_prompt": 20`, `"verdict": "passed"`, `"roofline"`, `"adapter"`} {
		if !bytes.Contains(b.Bytes(), []byte(field)) {
			t.Errorf("JSON has no %s", field)
		}
	}
}

// knownOf makes the answers of the model as it is the known ones.
func knownOf(t *testing.T) func(string, string) (string, []Answer) {
	t.Helper()
	b := small(t)
	m := &measurement{Bench: b, eng: open(t, b, engine.KVF32, "")}
	answers := must(m.own(t.Context()))(t)
	return func(string, string) (string, []Answer) { return "the model as it is", answers }
}

func TestWrongAnswersHaveNoSpeed(t *testing.T) {
	known := knownOf(t)
	for _, breaks := range []string{"", "model.norm.weight"} {
		b := small(t)
		b.known = known
		run, err := b.Run(t.Context(), open(t, b, engine.KVF32, breaks), Device{})
		if breaks == "" {
			if err != nil || run.Check.Verdict != Passed || !run.Check.KnownAnswer || run.Check.LeastMargin != 0.02 || len(run.Tests) == 0 {
				t.Errorf("as it is: %v, %+v", err, run.Check)
			}
			continue
		}
		if !errors.Is(err, ErrWrong) || !strings.Contains(err.Error(), "case ") {
			t.Errorf("with %s broken: %v", breaks, err)
		}
		if run.Check.Verdict != Failed || len(run.Tests) != 0 || run.Token != nil || len(run.Profiles) != 0 {
			t.Errorf("with %s broken: verdict %q, %d tests", breaks, run.Check.Verdict, len(run.Tests))
		}
		r := Report{Runs: []Run{run}}
		var md bytes.Buffer
		if err := r.WriteMarkdown(&md); err != nil {
			t.Fatal(err)
		}
		if s := md.String(); strings.Contains(s, " ± ") && strings.Contains(s, "| pp20") || !strings.Contains(s, "answers failed") || !strings.Contains(s, "want ") {
			t.Errorf("the tables of wrong answers:\n%s", s)
		}
	}
}

// TestWrongAnswersOfTimedRuns: an answer that goes wrong after the check has been passed is noticed too.
func TestWrongAnswersOfTimedRuns(t *testing.T) {
	b := small(t)
	m := &measurement{Bench: b, eng: open(t, b, engine.KVF32, ""), audited: map[string]bool{}, firsts: map[string]first{}}
	m.run.Check.LeastMargin = 0.02
	answers := must(m.own(t.Context()))(t)
	block := &answers[2]
	block.Greedy = slices.Clone(block.Greedy)
	block.Greedy[0]++
	m.cases = answers
	if err := m.audit(t.Context(), "before", answers[1].Prompt, answers[1].Greedy); err != nil || m.wrong != nil {
		t.Errorf("an answer that its logits call for: %v, %v", err, m.wrong)
	}
	if err := m.tests(t.Context(), m.plan(m.eng.Info())); !errors.Is(err, ErrWrong) || !strings.Contains(err.Error(), "case block: token 0") {
		t.Errorf("%v", err)
	}
}

// TestPromptsAreCompared: the first token after a prompt is held to known answers where there are any, else to the prompt computed token
// by token.
func TestPromptsAreCompared(t *testing.T) {
	b := must(New(Options{Prompts: []int{20}, Repetitions: 1}))(t)
	eng := open(t, b, engine.KVF32, "")
	ids := prompt("any", 20, 640)
	m := &measurement{Bench: b, eng: eng, firsts: map[string]first{}}
	m.run.Check.LeastMargin = 0.02
	got, _, err := m.ask(t.Context(), ids, 1)
	if err != nil {
		t.Fatal(err)
	}
	before := eng.Stats().Clock.Steps
	if err := m.compareFirst(t.Context(), "pp20", ids, got[0]); err != nil || m.wrong != nil {
		t.Errorf("a right token: %v, %v", err, m.wrong)
	}
	if steps := eng.Stats().Clock.Steps - before; steps != int64(len(ids)) {
		t.Errorf("a prompt of %d tokens was computed in %d steps", len(ids), steps)
	}
	if err := m.compareFirst(t.Context(), "pp20", ids, got[0]+1); err != nil || !errors.Is(m.wrong, ErrWrong) || !strings.Contains(m.wrong.Error(), "pp20, KV , case token by token: token 0 is") {
		t.Errorf("a wrong token: %v, %v", err, m.wrong)
	}
	if _, err := eng.Logits(t.Context(), engine.LogitsRequest{TokenIDs: ids, Chunk: -1}, nil); err == nil {
		t.Error("a chunk of -1 tokens is no error")
	}

	m = &measurement{Bench: b, eng: eng, cases: []Answer{{Name: "any", Prompt: ids, Greedy: []int32{got[0] + 1}, Margins: []float64{1}}}}
	m.run.Check = Check{LeastMargin: 0.02, KnownAnswer: true}
	if err := m.tests(t.Context(), m.plan(eng.Info())); !errors.Is(err, ErrWrong) || !strings.Contains(err.Error(), "pp20, KV , case any: token 0") || len(m.run.Tests) != 0 {
		t.Errorf("another answer is known: %v, tests %+v", err, m.run.Tests)
	}
}

// TestAnswersAreHeldToTheirLogits: a token that is not the best one is noticed where nothing is known.
func TestAnswersAreHeldToTheirLogits(t *testing.T) {
	b := small(t)
	m := &measurement{Bench: b, eng: open(t, b, engine.KVF32, ""), audited: map[string]bool{}}
	m.run.Check.LeastMargin = 0.02
	ids := prompt("any", 20, 640)
	got, _, err := m.ask(t.Context(), ids, 40) // across blocks
	if err != nil {
		t.Fatal(err)
	}
	got[33]++
	if err := m.audit(t.Context(), "b4", ids, got); err != nil || !errors.Is(m.wrong, ErrWrong) || !strings.Contains(m.wrong.Error(), "token 33") {
		t.Errorf("%v, %v", err, m.wrong)
	}
}

func TestBytesAreApproximate(t *testing.T) {
	b := small(t)
	b.known = func(string, string) (string, []Answer) {
		return "nobody", []Answer{{Name: "one", Prompt: []int32{5}, Greedy: []int32{-1}, Margins: []float64{9}}}
	}
	run, err := b.Run(t.Context(), open(t, b, engine.KVI8, ""), Device{})
	if err != nil || run.Check.Verdict != Approximate || len(run.Tests) == 0 || run.Check.Cases[0].Wrong == 0 {
		t.Errorf("%v, %+v", err, run.Check)
	}
}

func TestOptionsAreNamedWhenTheyAreWrong(t *testing.T) {
	for field, o := range map[string]Options{
		"n_prompt":                  {Prompts: []int{-1}, Repetitions: 1},
		"n_gen":                     {Gens: []int{1 << 30}, Repetitions: 1},
		"n_depth":                   {Gens: []int{1}, Depths: []int{-4}, Repetitions: 1},
		"batch":                     {Batches: []int{257}, Repetitions: 1},
		"repetitions":               {Gens: []int{1}},
		"n_prompt, n_gen and batch": {Prompts: []int{0}, Gens: []int{0}, Batches: []int{0}, Repetitions: 1},
	} {
		var p *engine.ParamError
		if _, err := New(o); !errors.As(err, &p) || p.Field != field {
			t.Errorf("%+v: %v; want an error that names %s", o, err, field)
		}
	}
}

// TestKnownAnswers: what is embedded is what the golden file of the full-size model says, and prompts follow its rule.
func TestKnownAnswers(t *testing.T) {
	raw := must(os.ReadFile("../../engine/local/testdata/full-shape.json"))(t)
	var golden struct {
		Cases []struct {
			Name     string
			N        int
			InputIDs []int32 `json:"input_ids"`
			Greedy   []int32
			Margins  []float64
		}
	}
	if err := json.Unmarshal(raw, &golden); err != nil {
		t.Fatal(err)
	}
	source, answers := Known("synthetic:ernie-4.5-0.3b", "q4g32")
	if source != "transformers fp32" || len(answers) != len(golden.Cases) {
		t.Fatalf("%d answers of %q", len(answers), source)
	}
	for i, c := range golden.Cases {
		a := answers[i]
		if a.Name != c.Name || len(a.Prompt) != c.N || !slices.Equal(a.Prompt[:len(c.InputIDs)], c.InputIDs) || !slices.Equal(a.Greedy, c.Greedy) || !slices.Equal(a.Margins, c.Margins) {
			t.Errorf("case %s is not that of the golden file", c.Name)
		}
	}
	for model, w := range map[string]string{"ernie-tiny": "q4g32", "synthetic:ernie-4.5-0.3b": "q8g32"} {
		if _, answers := Known(model, w); answers != nil {
			t.Errorf("%s with weights %s has known answers", model, w)
		}
	}
}

func TestSpread(t *testing.T) {
	s := spread([]float64{5, 1, 3, 2})
	if s.Median != 2.5 || s.Min != 1 || s.Max != 5 || s.SD < 1.70 || s.SD > 1.71 || s.Samples[0] != 5 {
		t.Errorf("%+v", s)
	}
	if one := spread([]float64{7}); one.Median != 7 || one.SD != 0 {
		t.Errorf("%+v", one)
	}
}

func TestMeasureDevice(t *testing.T) {
	dev := must(cpu.Open(cpu.Options{}))(t)
	defer dev.Close()
	d := MeasureDevice(t.Context(), dev)
	if d.Note != "" || d.CopyGBps <= 0 || d.DispatchUS <= 0 || d.SubmitUS <= 0 {
		t.Errorf("%+v", d)
	}
	if d = MeasureDevice(t.Context(), refusing{dev}); d.CopyGBps != 0 || !strings.Contains(d.Note, "no memory today") {
		t.Errorf("%+v", d)
	}
}

// refusing is a device without memory.
type refusing struct{ gpu.Device }

func (refusing) NewBuffer(string, int64, gpu.Usage) (gpu.Buffer, error) {
	return nil, errors.New("no memory today")
}
