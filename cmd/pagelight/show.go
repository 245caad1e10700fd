package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/engine/local"
	"github.com/pagelight/pagelight/internal/builtin"
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/hub"
	"github.com/pagelight/pagelight/internal/weights"
)

type showCmd struct {
	Model string `arg:"" help:"The model: a folder, a file in one, hf:ORG/NAME[:FILE] from the cache, builtin, or synthetic:NAME."`
	JSON  bool   `name:"json" help:"Print JSON."`
}

// Help explains what is shown.
func (showCmd) Help() string {
	return `Shows what a model is: architecture, size, how its weights are stored, tokenizer, chat template, licence, what it needs of
memory, and its files. Nothing is downloaded.`
}

// shown is what show prints.
type shown struct {
	Model         string           `json:"model"`
	Path          string           `json:"path,omitempty"`
	Name          string           `json:"name"`
	Architecture  string           `json:"architecture"`
	Parameters    int64            `json:"parameters"`
	Layers        int              `json:"num_hidden_layers"`
	Hidden        int              `json:"hidden_size"`
	Heads         int              `json:"num_attention_heads"`
	KVHeads       int              `json:"num_key_value_heads"`
	HeadDim       int              `json:"head_dim"`
	Vocabulary    int              `json:"vocab_size"`
	Context       int              `json:"max_position_embeddings"`
	Experts       int              `json:"num_experts,omitempty"`
	ActiveExperts int              `json:"num_experts_per_token,omitempty"`
	WeightBytes   int64            `json:"weight_bytes"` // as they lie on the device
	Formats       map[string]int64 `json:"formats"`      // bytes by format
	Tokenizer     string           `json:"tokenizer"`    // empty: none
	ChatTemplate  string           `json:"chat_template"`
	Licence       string           `json:"license,omitempty"`
	Memory        string           `json:"memory"`
	Files         []fileAndSize    `json:"files"`
}

// Run shows a model.
func (c *showCmd) Run(a *app) error {
	src, err := local.OpenModel(c.Model, "none", nil)
	if err != nil {
		return modelError{err}
	}
	defer src.Close()
	s, err := describe(a.ctx, c.Model, src)
	if err != nil {
		return modelError{err}
	}
	if c.JSON {
		return printJSON(a.stdout, s)
	}
	return s.print(a.stdout)
}

// describe looks at a model that is open.
func describe(ctx context.Context, model string, src weights.Source) (*shown, error) {
	cfg := src.Config()
	s := &shown{
		Model: model, Name: cfg.Name, Architecture: cfg.Architecture, Layers: cfg.NumLayers, Hidden: cfg.HiddenSize, Heads: cfg.NumHeads,
		KVHeads: cfg.NumKVHeads, HeadDim: cfg.HeadDim, Vocabulary: cfg.VocabSize, Context: cfg.MaxPositions, WeightBytes: src.Bytes(),
		Formats: map[string]int64{}, Files: []fileAndSize{},
	}
	if cfg.MoE != nil {
		s.Experts, s.ActiveExperts = cfg.MoE.NumExperts, cfg.MoE.TopK
	}
	for _, t := range weights.Tensors(cfg) {
		info, err := src.Info(t.Name)
		if errors.Is(err, weights.ErrNoTensor) {
			continue // one that may be left out
		}
		if err != nil {
			return nil, err
		}
		s.Parameters += int64(info.Rows) * int64(info.K)
		if t.Vector { // whatever they are stored in
			s.Formats["f32"] += 4 * int64(info.K)
			continue
		}
		s.Formats[info.Format.String()] += int64(info.Rows) * int64(info.Format.RowBytes(info.K)+info.Format.ScaleBytes(info.K))
	}
	var err error
	if s.Tokenizer, s.ChatTemplate, err = describeText(ctx, src); err != nil {
		return nil, err
	}
	if s.Licence, err = licence(ctx, src); err != nil {
		return nil, err
	}
	s.Memory = describeMemory(src)
	s.Path, s.Files, err = modelFiles(model)
	return s, err
}

// describeText says which tokenizer and which chat template there are.
func describeText(ctx context.Context, src weights.Source) (tokenizer, template string, err error) {
	model, err := src.File(ctx, "tokenizer.model")
	if err != nil {
		return "", "", err
	}
	fast, err := src.File(ctx, "tokenizer.json")
	if err != nil {
		return "", "", err
	}
	switch {
	case src.Config().SyntheticTokenizer:
		tokenizer = "synthetic, for speed tests"
	case model != nil:
		tokenizer = "SentencePiece (tokenizer.model)"
	case fast != nil:
		var file struct {
			Model struct {
				Type string `json:"type"`
			} `json:"model"`
		}
		_ = json.Unmarshal(fast, &file) // opening it says what is wrong
		tokenizer = strings.TrimSpace(file.Model.Type + " (tokenizer.json)")
	}
	text, err := engine.OpenText(ctx, src)
	if err != nil {
		return fmt.Sprintf("%s, which cannot be used: %v", tokenizer, err), "", nil
	}
	if _, err := text.Tokenize("a", false); errors.Is(err, engine.ErrNoTokenizer) && tokenizer != "" {
		tokenizer += ", which cannot be used"
	}
	switch has, err := text.ChatTemplate(); {
	case err != nil:
		template = fmt.Sprintf("yes, which cannot be used: %v", err)
	case has:
		template = "yes"
	}
	return tokenizer, template, nil
}

// licence is what a model's card or metadata says of its licence; empty when they say nothing.
func licence(ctx context.Context, src weights.Source) (string, error) {
	if l, ok := src.(interface{ License() string }); ok && l.License() != "" {
		return l.License(), nil
	}
	for _, name := range []string{"README.md", "MODEL_CARD.md"} {
		card, err := src.File(ctx, name)
		if err != nil {
			return "", err
		}
		if l := cardLicence(string(card)); l != "" {
			return l, nil
		}
	}
	for _, name := range []string{"LICENSE", "LICENSE.txt", "LICENSE.md"} {
		text, err := src.File(ctx, name)
		if err != nil {
			return "", err
		}
		if text != nil {
			first, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
			return fmt.Sprintf("%s: %q", name, strings.TrimSpace(shorten(strings.TrimSpace(first), 80))), nil
		}
	}
	return "", nil
}

// cardLicence reads the licence of a model card's front matter, lines of "key: value" between two lines "---".
func cardLicence(card string) string {
	lines := strings.Split(strings.ReplaceAll(card, "\r\n", "\n"), "\n")
	if len(lines) == 0 || strings.TrimSpace(lines[0]) != "---" {
		return ""
	}
	found := map[string]string{}
	for _, line := range lines[1:] {
		if strings.TrimSpace(line) == "---" {
			break
		}
		if key, value, ok := strings.Cut(line, ":"); ok {
			found[key] = strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	if name := found["license_name"]; name != "" && found["license"] == "other" {
		return name
	}
	return found["license"]
}

// describeMemory says in a line what the model needs by default, on the GPU that everybody has.
func describeMemory(src weights.Source) string {
	plan, err := engine.PlanMemory(engine.Config{Source: src}, gpu.Info{Kind: gpu.KindHardware, Name: "a GPU"}, gpu.DefaultLimits)
	if err != nil {
		return err.Error()
	}
	if !plan.Fits {
		return fmt.Sprintf("needs %s on a GPU, more than the %s of the default budget%s", byteSize(plan.Need), byteSize(plan.Budget), wouldFit(plan.Remedies))
	}
	return fmt.Sprintf("%s on a GPU (weights %s, KV cache %s) of a budget of %s, with contexts of %d tokens",
		byteSize(plan.Need), byteSize(plan.Weights), byteSize(plan.KV), byteSize(plan.Budget), plan.MaxModelLen)
}

// modelFiles lists a model's files with their sizes.
func modelFiles(model string) (path string, files []fileAndSize, err error) {
	path = model
	switch {
	case model == "", model == local.Builtin:
		files, err = listFiles(builtin.FS())
		return "", files, err
	case strings.HasPrefix(model, weights.SyntheticPrefix):
		return "", []fileAndSize{}, nil
	case hub.IsName(model):
		n, err := hubName(model)
		if err != nil {
			return "", nil, err
		}
		h, err := newHub()
		if err != nil {
			return "", nil, err
		}
		found, err := h.Find(n)
		if err != nil {
			return "", nil, err
		}
		path = found.Path
	}
	st, err := os.Stat(path)
	if err != nil {
		return "", nil, err
	}
	dir := path
	if !st.IsDir() {
		dir = filepath.Dir(path)
	}
	files, err = listFiles(os.DirFS(dir))
	if st.IsDir() || !strings.HasSuffix(path, ".gguf") && !weights.BeginsAsGGUF(path) {
		return dir, files, err
	}
	// Of the files beside a GGUF file only the other parts of the same model belong to it.
	stem := ggufPart.ReplaceAllString(filepath.Base(path), "")
	files = slices.DeleteFunc(files, func(f fileAndSize) bool {
		return f.Name != filepath.Base(path) && (f.Name == stem || ggufPart.ReplaceAllString(f.Name, "") != stem)
	})
	return path, files, err
}

// ggufPart ends the name of one part of a model in several files.
var ggufPart = regexp.MustCompile(`-\d{5}-of-\d{5}\.gguf$`)

// listFiles lists the files in the root of a file system; links count as what they lead to.
func listFiles(fsys fs.FS) ([]fileAndSize, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, err
	}
	files := []fileAndSize{}
	for _, e := range entries {
		if st, err := fs.Stat(fsys, e.Name()); err == nil && st.Mode().IsRegular() {
			files = append(files, fileAndSize{e.Name(), st.Size()})
		}
	}
	return files, nil
}

// print writes for people.
func (s *shown) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(what, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", what, fmt.Sprintf(format, args...)) }
	or := func(text, none string) string {
		if text == "" {
			return none
		}
		return text
	}
	row("model", "%s", s.Name)
	if s.Path != "" {
		row("path", "%s", s.Path)
	}
	row("architecture", "%s", s.Architecture)
	row("parameters", "%d (%s)", s.Parameters, count(s.Parameters))
	row("shape", "%d layers, hidden size %d, %d heads of %d, %d for keys and values", s.Layers, s.Hidden, s.Heads, s.HeadDim, s.KVHeads)
	if s.Experts > 0 {
		row("experts", "%d, of which %d for a token", s.Experts, s.ActiveExperts)
	}
	row("vocabulary", "%d", s.Vocabulary)
	row("context", "%d tokens", s.Context)
	var formats []string
	for _, f := range slices.SortedFunc(maps.Keys(s.Formats), func(a, b string) int { return int(s.Formats[b] - s.Formats[a]) }) {
		formats = append(formats, fmt.Sprintf("%s %s", f, byteSize(s.Formats[f])))
	}
	row("weights", "%s: %s", byteSize(s.WeightBytes), strings.Join(formats, ", "))
	row("tokenizer", "%s", or(s.Tokenizer, "none: takes token ids only"))
	row("chat template", "%s", or(s.ChatTemplate, "none: continues text only"))
	row("licence", "%s", or(s.Licence, "not stated"))
	row("memory", "%s", s.Memory)
	for i, f := range s.Files {
		what := ""
		if i == 0 {
			what = "files"
		}
		row(what, "%s (%s)", f.Name, byteSize(f.Bytes))
	}
	return t.Flush()
}

// count writes a number of parameters as people do: 135 M, 1.5 B.
func count(n int64) string {
	for _, unit := range []struct {
		size int64
		name string
	}{{1e9, "B"}, {1e6, "M"}, {1e3, "K"}} {
		if n >= unit.size {
			return fmt.Sprintf("%.3g %s", float64(n)/float64(unit.size), unit.name)
		}
	}
	return fmt.Sprint(n)
}
