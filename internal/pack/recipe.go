// Package pack turns a model into a bundle whose matrices are quantized as a recipe says: it calibrates, quantizes, keeps what is
// finished for the next run when it is interrupted, and measures which matrices are worth more bits.
package pack

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
)

// Method is how a matrix is quantized.
type Method string

// The methods.
const (
	RTN     Method = "rtn"      // each group on its own, scale and zero point searched for the least squared error
	AWQ     Method = "awq"      // channels scaled to what they read, and errors weighed by it
	GPTQ    Method = "gptq"     // errors weighed, and made up for by the weights that follow
	AWQGPTQ Method = "awq+gptq" // both
)

// methods are all of them.
var methods = []Method{RTN, AWQ, GPTQ, AWQGPTQ}

func (m Method) scales() bool   { return m == AWQ || m == AWQGPTQ }
func (m Method) feedback() bool { return m == GPTQ || m == AWQGPTQ }

// Quants are the names of formats that a recipe may ask for, with the group that each has when nobody names one.
var quants = []struct {
	name  string
	kind  quant.Kind
	group int
}{
	{"q8", quant.Q8, 32},
	{"q4", quant.Q4, 32},
	{"q3", quant.Q3, 64},
	{"q2", quant.Q2, 64},
	{"ccq2.75", quant.CCQ275, quant.CCQGroup},
	{"ccq2.5", quant.CCQ25, quant.CCQGroup},
	{"ccq2", quant.CCQ2, quant.CCQGroup},
	{"f8", quant.F8, 128},
}

// QuantNames lists what a rule may ask for.
func QuantNames() []string {
	names := []string{"none"}
	for _, q := range quants {
		names = append(names, q.name)
	}
	return names
}

// Rule says how some matrices are stored. The first rule that matches a matrix counts.
type Rule struct {
	// Match are patterns of which one has to match: a part of the tensor's name between dots (down_proj, embed_tokens), or a
	// text with stars for the whole name (model.layers.0.*).
	Match []string `yaml:"match"`
	// Layers restricts the rule to some layers: "0-3", "5", "0-1,6". Empty: all.
	Layers string `yaml:"layers"`
	// Quant is one of QuantNames.
	Quant string `yaml:"quant"`
	// Group is the number of weights that share a scale; 0: what the format usually has.
	Group int `yaml:"group"`
	// Method is how; empty: that of the recipe, but rtn for embedding and LM head, which calibration does not see.
	Method Method `yaml:"method"`
}

// Recipe is what --recipe reads. Matrices that no rule matches keep their format.
type Recipe struct {
	Method Method `yaml:"method"` // of rules that name none; empty: gptq below 8 bits, else rtn
	Rules  []Rule `yaml:"tensors"`
}

// maxRecipe bounds a recipe's text.
const maxRecipe = 1 << 20

// ParseRecipe reads YAML. Unknown keys and values are errors that name the line or the rule.
func ParseRecipe(text []byte) (*Recipe, error) {
	if len(text) > maxRecipe {
		return nil, fmt.Errorf("recipe: it has %d bytes, at most %d are read", len(text), maxRecipe)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	var r Recipe
	if err := d.Decode(&r); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("recipe: it is empty")
		}
		return nil, fmt.Errorf("recipe: %s", strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\n  ", " "), "yaml: "))
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("recipe: there is more than one document in it")
	}
	return &r, r.check()
}

func (r *Recipe) check() error {
	if r.Method != "" && !slices.Contains(methods, r.Method) {
		return fmt.Errorf("recipe: method %q: there are %s", r.Method, list(methods))
	}
	if len(r.Rules) == 0 {
		return errors.New("recipe: it has no rules under \"tensors\"")
	}
	for i := range r.Rules {
		if err := r.Rules[i].check(); err != nil {
			return fmt.Errorf("recipe: rule %d (%s): %w", i+1, strings.Join(r.Rules[i].Match, ", "), err)
		}
	}
	return nil
}

func (r *Rule) check() error {
	if len(r.Match) == 0 || slices.Contains(r.Match, "") {
		return errors.New("it has no pattern under \"match\"")
	}
	if !slices.Contains(QuantNames(), r.Quant) {
		return fmt.Errorf("quant %q: there are %s", r.Quant, list(QuantNames()))
	}
	if r.Method != "" && !slices.Contains(methods, r.Method) {
		return fmt.Errorf("method %q: there are %s", r.Method, list(methods))
	}
	if _, err := layerSet(r.Layers); err != nil {
		return err
	}
	if r.Group == 0 {
		return nil
	}
	f, ok := r.format()
	if !ok {
		return fmt.Errorf("group %d: a matrix that keeps its format has none of its own", r.Group)
	}
	if err := f.Check(r.Group * 512); err != nil {
		return fmt.Errorf("group %d: %w", r.Group, err)
	}
	return nil
}

func list[T ~string](words []T) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = string(w)
	}
	return strings.Join(out, ", ")
}

// format is what the rule asks for, before the matrix is known; ok is false for none.
func (r *Rule) format() (f quant.Format, ok bool) {
	for _, q := range quants {
		if q.name == r.Quant {
			f = quant.Format{Kind: q.kind, Group: q.group}
			if r.Group > 0 {
				f.Group = r.Group
			}
			return f, true
		}
	}
	return f, false
}

// matches says whether the rule is for a tensor.
func (r *Rule) matches(name string) bool {
	if layers, _ := layerSet(r.Layers); layers != nil && !layers[layerOf(name)] {
		return false
	}
	for _, p := range r.Match {
		if strings.Contains(p, "*") {
			if glob(p, name) {
				return true
			}
			continue
		}
		if slices.Contains(strings.Split(name, "."), p) || strings.HasSuffix(strings.TrimSuffix(name, ".weight"), "."+p) {
			return true
		}
	}
	return false
}

// glob matches a pattern whose stars stand for any text.
func glob(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	last := len(parts) - 1
	if !strings.HasPrefix(name, parts[0]) {
		return false
	}
	name = name[len(parts[0]):]
	for _, p := range parts[1:last] {
		i := strings.Index(name, p)
		if i < 0 {
			return false
		}
		name = name[i+len(p):]
	}
	return strings.HasSuffix(name, parts[last])
}

// layerOf is the layer that a tensor belongs to, or -1.
func layerOf(name string) int {
	rest, ok := strings.CutPrefix(name, "model.layers.")
	if !ok {
		return -1
	}
	number, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	if err != nil {
		return -1
	}
	return n
}

// layerSet reads "0-3,7"; empty gives nil.
func layerSet(text string) (map[int]bool, error) {
	if text == "" {
		return nil, nil
	}
	set := map[int]bool{}
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		a, err1 := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || a < 0 || b < a || b > 1<<16 {
			return nil, fmt.Errorf("layers %q: write numbers and ranges such as 0-3,7", text)
		}
		for i := a; i <= b; i++ {
			set[i] = true
		}
	}
	return set, nil
}

// Target is what becomes of one matrix.
type Target struct {
	Name   string
	Rows   int
	K      int
	Stored quant.Format // in the source
	Format quant.Format // in the bundle; the same as Stored for what is kept
	Method Method       // of what is not kept
}

// Kept says whether the matrix stays as it is stored.
func (t Target) Kept() bool { return t.Format == t.Stored }

// bits is the size of a matrix in bits, scales included.
func bits(f quant.Format, rows, k int) int64 {
	return 8 * int64(rows) * int64(f.RowBytes(k)+f.ScaleBytes(k))
}

// Plan says what becomes of every matrix of a source. note, which may be nil, hears of what the recipe asks for and does not get.
//
// A matrix that is quantized already keeps its format unless the rule asks for fewer bits. Routers of experts, which choose where a
// token goes, always keep theirs.
func (r *Recipe) Plan(src weights.Source, note func(string)) ([]Target, error) {
	if note == nil {
		note = func(string) {}
	}
	var out []Target
	used := make([]bool, len(r.Rules))
	for _, s := range weights.Tensors(src.Config()) {
		if s.Vector {
			continue
		}
		info, err := src.Info(s.Name)
		if err != nil {
			return nil, err
		}
		t := Target{Name: s.Name, Rows: s.Rows, K: s.K, Stored: info.Format, Format: info.Format}
		for i := range r.Rules {
			rule := &r.Rules[i]
			if !rule.matches(s.Name) {
				continue
			}
			used[i] = true
			if !s.Router {
				if err := t.follow(rule, r.Method, note); err != nil {
					return nil, err
				}
			}
			break
		}
		out = append(out, t)
	}
	for i, u := range used {
		if !u {
			note(fmt.Sprintf("rule %d (%s) matches nothing that no rule before it matches", i+1, strings.Join(r.Rules[i].Match, ", ")))
		}
	}
	return out, nil
}

// follow sets what the rule asks for.
func (t *Target) follow(rule *Rule, method Method, note func(string)) error {
	f, ok := rule.format()
	if !ok {
		return nil
	}
	if f.Kind != quant.CCQ275 && f.Kind != quant.CCQ25 && f.Kind != quant.CCQ2 {
		if g := quant.FitGroup(t.K, f.Group); g != f.Group {
			f.Group = g
			note(fmt.Sprintf("%s: rows of %d are not whole groups; its groups have %d weights", t.Name, t.K, g))
		}
	}
	if err := f.Check(t.K); err != nil {
		return fmt.Errorf("tensor %q: %w; give it another quant in a recipe", t.Name, err)
	}
	floats := t.Stored.Kind == quant.F32 || t.Stored.Kind == quant.F16 || t.Stored.Kind == quant.BF16
	if !floats && bits(f, t.Rows, t.K) >= bits(t.Stored, t.Rows, t.K) {
		note(fmt.Sprintf("%s: it is stored as %v, which %v would not make smaller; it stays", t.Name, t.Stored, f))
		return nil
	}
	t.Format, t.Method = f, rule.Method
	if t.Method == "" {
		t.Method = method
	}
	if t.Method == "" {
		t.Method = GPTQ
		if f.Kind == quant.Q8 {
			t.Method = RTN
		}
	}
	if !quant.Searched(f) || rule.Method == "" && !isLinear(t.Name) {
		t.Method = RTN // calibration has nothing to say
	}
	return nil
}

// Simple is the recipe for one format: embedding and LM head, which are read for every token and cost little, become embedding
// ("none", or one of QuantNames), and all other matrices become name.
func Simple(name string, group int, method Method, embedding string) (*Recipe, error) {
	r := &Recipe{Method: method}
	if name == "none" && group == 0 && (embedding == "" || embedding == "none") {
		return r, nil
	}
	if embedding == "" {
		embedding = name
	}
	r.Rules = []Rule{
		{Match: []string{"embed_tokens", "lm_head"}, Quant: embedding, Method: RTN},
		{Match: []string{"*"}, Quant: name, Group: group},
	}
	return r, r.check()
}
