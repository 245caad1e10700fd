package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pagelight/pagelight/internal/weights"
)

// File is a file of a repository.
type File struct {
	Path   string
	Size   int64  // bytes; -1 when the hub has not said
	Etag   string // the name of its blob: SHA256 where there is one, else BlobID; "" when the hub has not said
	SHA256 string // of the content, for files that are stored apart from git (LFS)
	BlobID string // sha1 that git gives the content, for the others
}

// Format is what a model is stored as.
type Format string

// Formats that Find and Pull tell apart.
const (
	FormatSafetensors Format = "safetensors"
	FormatGGUF        Format = "gguf"
	FormatBundle      Format = "bundle"
	FormatFile        Format = "file" // one file that was asked for by its name, and that is no model by itself
)

const (
	maxIndexBytes = 16 << 20
	maxShards     = 1 << 16
	safetensors   = "model.safetensors"
	shardIndex    = "model.safetensors.index.json"
)

// companions are the small files that the engine reads beside weights, and those that tell whoever uses them what they
// may do with the model.
var companions = []string{
	"config.json", "generation_config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",
	"added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json", "quantize_config.json", "quant_config.json",
	"README.md", "MODEL_CARD.md", "LICENSE", "LICENSE.md", "LICENSE.txt", "NOTICE", "NOTICE.md", "NOTICE.txt",
}

// choice is what of a repository is wanted.
type choice struct {
	format  Format
	small   []File // wanted first, so that a model whose weights are there has all the rest too
	weights []File
	index   string // one of small, which says what else belongs to the weights; "" when nothing does
	file    string // what the engine opens, when that is not the folder
}

func (c *choice) all() []File { return slices.Concat(c.small, c.weights) }

// needed are the files without which a model in the cache cannot be used. Other libraries download what they need, which may
// be fewer of the small files.
func (c *choice) needed(present map[string]File) []File {
	out := slices.Clone(c.weights)
	if c.format == FormatGGUF || c.format == FormatFile {
		return out
	}
	var tokenizers []File
	has := false
	for _, f := range c.small {
		switch f.Path {
		case "config.json", c.index:
			out = append(out, f)
		case "tokenizer.json", "tokenizer.model":
			tokenizers = append(tokenizers, f)
			_, there := present[f.Path]
			has = has || there
		}
	}
	if !has {
		out = append(out, tokenizers...)
	}
	return out
}

// noModelError says that files do not make a model.
type noModelError struct{ why string }

func (e *noModelError) Error() string { return e.why }

func fileMap(files []File) map[string]File {
	m := make(map[string]File, len(files))
	for _, f := range files {
		m[f.Path] = f
	}
	return m
}

// choose says which files of a repository are wanted. The name says which .gguf, or which file, when it names one.
func choose(n Name, files []File) (choice, error) {
	have := fileMap(files)
	c := choice{}
	for _, name := range companions {
		if f, ok := have[name]; ok {
			c.small = append(c.small, f)
		}
	}
	if n.File != "" {
		return c.one(n, files)
	}
	_, single := have[safetensors]
	_, sharded := have[shardIndex]
	_, config := have["config.json"]
	manifest, bundle := have[weights.ManifestFile]
	ggufs := ggufModels(files)
	switch {
	case bundle && !single && !sharded:
		c.format, c.index = FormatBundle, weights.ManifestFile
		c.small = append(c.small, manifest)
	case single && config:
		c.format = FormatSafetensors
		c.weights = []File{have[safetensors]}
	case sharded && config:
		c.format, c.index = FormatSafetensors, shardIndex
		c.small = append(c.small, have[shardIndex])
	case len(ggufs) == 1:
		return c, c.gguf(ggufs[0], have)
	case len(ggufs) > 1:
		return c, &AmbiguousError{n, ggufs}
	case single || sharded:
		return c, &noModelError{"config.json is missing"}
	default:
		return c, &noModelError{"there are no weights that can be read: " + otherWeights(files)}
	}
	return c, nil
}

// one chooses the file that a name names.
func (c choice) one(n Name, files []File) (choice, error) {
	have := fileMap(files)
	if f, ok := have[n.File]; ok {
		if strings.HasSuffix(strings.ToLower(f.Path), ".gguf") {
			err := c.gguf(f, have)
			return c, err
		}
		return choice{format: FormatFile, weights: []File{f}, file: f.Path}, nil
	}
	// Part of a name, as in hf:ORG/NAME:Q4_K_M.
	var hits []File
	for _, f := range ggufModels(files) {
		if namesQuantization(f.Path, n.File) {
			hits = append(hits, f)
		}
	}
	switch len(hits) {
	case 1:
		err := c.gguf(hits[0], have)
		return c, err
	case 0:
		why := fmt.Sprintf("there is no file %q", n.File)
		if g := ggufModels(files); len(g) > 0 {
			why += "; its .gguf files are " + listSizes(g)
		}
		return c, &noModelError{why}
	}
	return c, &AmbiguousError{n, hits}
}

// gguf chooses a .gguf file, with the other parts of the model when it is one of several. The engine opens the first.
func (c *choice) gguf(f File, have map[string]File) error {
	c.format = FormatGGUF
	for _, name := range ggufParts(f.Path) {
		part, ok := have[name]
		if !ok {
			return &noModelError{fmt.Sprintf("%s is one of several parts, and %s is missing", f.Path, name)}
		}
		c.weights = append(c.weights, part)
	}
	c.file = c.weights[0].Path
	// A GGUF file has its configuration and its vocabulary in it; those beside it may be another file's.
	c.small = slices.DeleteFunc(c.small, func(s File) bool {
		ext := path.Ext(s.Path)
		return ext == ".json" || ext == ".jinja" || s.Path == "tokenizer.model" || s.Path == "merges.txt"
	})
	return nil
}

// maxParts bounds the parts of one model.
const maxParts = 512

var ggufPart = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})(\.gguf)$`)

// ggufParts are the paths of all parts of the model that a file belongs to: NAME-00001-of-00003.gguf and so on.
func ggufParts(file string) []string {
	m := ggufPart.FindStringSubmatch(file)
	if m == nil {
		return []string{file}
	}
	count, err := strconv.Atoi(m[3])
	if err != nil || count < 1 || count > maxParts {
		return []string{file}
	}
	parts := make([]string, count)
	for i := range parts {
		parts[i] = fmt.Sprintf("%s-%05d-of-%s%s", m[1], i+1, m[3], m[4])
	}
	return parts
}

// ggufModels are the .gguf files that hold a model: of one in several parts the first, with the size of all. Projectors of
// images and calibration data are none.
func ggufModels(files []File) []File {
	have := fileMap(files)
	var out []File
	for _, f := range files {
		base := strings.ToLower(path.Base(f.Path))
		if !strings.HasSuffix(base, ".gguf") || strings.HasPrefix(base, "mmproj") || strings.Contains(base, "imatrix") {
			continue
		}
		parts := ggufParts(f.Path)
		if f.Path != parts[0] {
			continue
		}
		for _, p := range parts[1:] {
			f.Size += max(have[p].Size, 0)
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// namesQuantization says whether a .gguf file's name ends with the given word: name-Q4_K_M.gguf, name.Q4_K_M.gguf.
func namesQuantization(file, word string) bool {
	if m := ggufPart.FindStringSubmatch(file); m != nil {
		file = m[1]
	}
	base := strings.TrimSuffix(strings.ToLower(path.Base(file)), ".gguf")
	rest, ok := strings.CutSuffix(base, strings.ToLower(word))
	return ok && (rest == "" || strings.ContainsAny(rest[len(rest)-1:], "-._"))
}

// addListed adds the files that an index of safetensors or a bundle's manifest names.
func (c *choice) addListed(raw []byte, have map[string]File) error {
	names, err := listedNames(c.format, raw)
	if err != nil {
		return fmt.Errorf("%s %w", c.index, err)
	}
	for _, name := range names {
		f, ok := have[name]
		if !ok {
			return fmt.Errorf("%s names %s, which is missing", c.index, name)
		}
		c.weights = append(c.weights, f)
	}
	return nil
}

func listedNames(format Format, raw []byte) ([]string, error) {
	names := map[string]bool{}
	if format == FormatBundle {
		m, err := weights.ParseManifest(raw)
		if err != nil {
			return nil, err
		}
		for _, s := range m.Shards {
			names[s.File] = true
		}
		for _, f := range m.Files {
			names[f.File] = true
		}
	} else {
		var index struct {
			WeightMap map[string]string `json:"weight_map"`
		}
		if err := json.Unmarshal(raw, &index); err != nil {
			return nil, errors.New("is not valid JSON of an index")
		}
		for _, file := range index.WeightMap {
			names[file] = true
		}
	}
	if len(names) == 0 || len(names) > maxShards {
		return nil, fmt.Errorf("names %d files of weights", len(names))
	}
	for name := range names {
		if !validPath(name) {
			return nil, fmt.Errorf("names the file %q, which would lie outside the folder", name)
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// otherWeights says what a repository has instead of weights that can be read.
func otherWeights(files []File) string {
	kinds := map[string]string{
		".bin": "PyTorch", ".pt": "PyTorch", ".pth": "PyTorch", ".ckpt": "PyTorch", ".onnx": "ONNX", ".h5": "TensorFlow", ".tflite": "TensorFlow",
		".msgpack": "Flax", ".pdparams": "Paddle", ".mlmodel": "Core ML", ".safetensors": "safetensors under other names",
	}
	found := map[string]bool{}
	for _, f := range files {
		if kind := kinds[path.Ext(f.Path)]; kind != "" && path.Base(f.Path) != "training_args.bin" {
			found[kind] = true
		}
	}
	if len(found) == 0 {
		return "neither model.safetensors nor a .gguf nor a bundle is there"
	}
	return fmt.Sprintf("what is there is for %s; look for a copy in safetensors or GGUF", strings.Join(slices.Sorted(maps.Keys(found)), ", "))
}

// AmbiguousError says that a name means several models.
type AmbiguousError struct {
	Name  Name
	Files []File
}

// Error lists the models.
func (e *AmbiguousError) Error() string {
	n := e.Name
	n.File = e.Files[0].Path
	return fmt.Sprintf("%s means one of several models: %s; name one, as in %s", e.Name, listSizes(e.Files), n)
}

// listSizes names files with their sizes, a line each when there are several.
func listSizes(files []File) string {
	var b strings.Builder
	for _, f := range files {
		fmt.Fprintf(&b, "\n  %s", f.Path)
		if f.Size >= 0 {
			fmt.Fprintf(&b, " (%s)", FormatSize(f.Size))
		}
	}
	b.WriteByte('\n')
	return b.String()
}

// FormatSize writes a number of bytes for people, in powers of 1,024.
func FormatSize(n int64) string {
	v := float64(n)
	for _, unit := range []string{"B", "KiB", "MiB"} {
		if v < 1024 {
			return fmt.Sprintf("%.4g %s", v, unit)
		}
		v /= 1024
	}
	return fmt.Sprintf("%.4g GiB", v)
}

// likely are the files that an index which was not read yet names in all likelihood.
func (c *choice) likely(files []File) []File {
	var out []File
	for _, f := range files {
		shard := c.format == FormatSafetensors && strings.HasPrefix(f.Path, "model-") && strings.HasSuffix(f.Path, ".safetensors")
		if shard || c.format == FormatBundle && strings.HasSuffix(f.Path, ".bin") && !strings.Contains(f.Path, "/") {
			out = append(out, f)
		}
	}
	return out
}
