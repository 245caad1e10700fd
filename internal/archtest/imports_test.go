// Package archtest enforces who may import whom. The table is that of docs/architecture.md.
package archtest

import (
	"errors"
	"go/build"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/pagelight/pagelight"

// mayImport lists, for each package of this module, the packages of this module that it may import. A package without a
// line here fails the test.
var mayImport = map[string][]string{
	"internal/gpu":                    {},
	"wgsl":                            {},
	"static":                          {},
	"internal/quant":                  {},
	"internal/kvcache":                {},
	"internal/sample":                 {},
	"internal/tokenizer":              {"internal/tokenizer/pattern"},
	"internal/tokenizer/pattern":      {},
	"internal/chat":                   {"internal/chat/jinja"},
	"internal/chat/jinja":             {},
	"internal/sched":                  {"internal/kvcache"},
	"internal/ref":                    {"internal/quant"},
	"internal/weights":                {"internal/quant"},
	"internal/weights/checkpointtest": {"internal/weights", "internal/quant"},
	"internal/kernels":                {"internal/gpu", "wgsl", "internal/quant"},
	"internal/model":                  {"internal/kernels", "internal/weights", "internal/gpu", "internal/quant"},
	"internal/planner":                {"internal/model", "internal/kernels", "internal/kvcache", "internal/gpu", "internal/weights", "internal/quant"},
	"internal/runner": {
		"internal/planner",
		"internal/sched", "internal/kvcache", "internal/model", "internal/kernels", "internal/sample", "internal/gpu",
		"internal/weights", "internal/quant",
	},
	"internal/calibrate": {
		"internal/gpu", "internal/kernels", "internal/planner", "internal/runner", "internal/model", "internal/sched", "internal/kvcache", "internal/weights", "internal/quant",
	},
	"engine": {
		"internal/gpu", "internal/runner", "internal/planner", "internal/kernels", "internal/model", "internal/weights", "internal/quant", "internal/sched",
		"internal/kvcache", "internal/sample", "internal/tokenizer", "internal/chat",
	},

	"internal/gpu/cpu":        {"internal/gpu", "internal/ref", "wgsl", "internal/quant"},
	"internal/gpu/wgpunative": {"internal/gpu"},
	"internal/gpu/webgpujs":   {"internal/gpu"},
	"internal/gpu/contract":   {"internal/gpu"},
	"internal/gpu/gputest":    {"internal/gpu", "internal/gpu/wgpunative"},
	"internal/conformance":    {"internal/kernels", "internal/ref", "internal/gpu", "wgsl", "internal/quant"},
	"internal/builtin":        {"internal/weights"},
	"internal/builtin/gen":    {"internal/weights", "internal/quant"},
	"internal/openai":         {"engine"},
	"internal/browsertest":    {},
	"internal/site":           {"internal/weights", "internal/planner", "internal/kernels", "internal/gpu", "internal/quant"},
	"internal/loadtest":       {},
	"internal/hub":            {"internal/weights"},
	"internal/hub/hubtest":    {},
	"internal/pack":           {"internal/calibrate", "internal/gpu", "internal/quant", "internal/weights"},

	"internal/bench": {"engine", "internal/gpu", "internal/kernels"},

	"engine/local": {
		"engine", "internal/gpu", "internal/gpu/cpu", "internal/gpu/wgpunative", "internal/weights", "internal/quant",
		"internal/builtin", "internal/kernels", "internal/hub",
	},
	"host": {"engine", "internal/openai"},
	"wasm": {
		"engine", "internal/conformance", "internal/gpu", "internal/gpu/webgpujs", "internal/gpu/cpu", "internal/openai",
		"internal/weights", "internal/quant", "internal/bench",
	},
	"cmd/pagelight": {
		"engine", "engine/local", "host", "static", "internal/weights", "internal/quant", "internal/conformance",
		"internal/builtin", "internal/gpu", "internal/gpu/wgpunative", "internal/gpu/cpu", "internal/site", "internal/kernels",
		"internal/openai", "internal/loadtest", "internal/hub", "internal/calibrate", "internal/pack", "internal/bench",
	},
}

// onlyIn names the packages that alone may import an outside package (or one below it).
var onlyIn = map[string][]string{
	"C":                          {"internal/gpu/wgpunative"},
	"syscall/js":                 {"internal/gpu/webgpujs", "wasm"},
	"github.com/cogentcore":      {"internal/gpu/wgpunative"},
	"github.com/oliverbestmann":  {"internal/gpu/wgpunative"},
	"github.com/rajveermalviya":  {"internal/gpu/wgpunative"},
	"github.com/go-chi":          {"host"},
	"github.com/prometheus":      {"host"},
	"nhooyr.io/websocket":        {"host"},
	"net/http":                   {"host", "cmd/pagelight", "internal/browsertest", "internal/loadtest", "internal/hub", "internal/hub/hubtest"},
	"github.com/gofrs":           {"internal/hub"},
	"github.com/vbauerster":      {"cmd/pagelight"},
	"github.com/alecthomas":      {"cmd/pagelight"},
	"github.com/chromedp":        {"internal/browsertest"},
	"go.yaml.in":                 {"internal/pack"},
	"golang.org/x/term":          {"cmd/pagelight"},
	"golang.org/x/sys":           {"internal/gpu/wgpunative", "engine/local"},
	"golang.org/x/text":          {"internal/tokenizer"},
	"github.com/eliben":          {},
	"google.golang.org/protobuf": {},
}

func TestImports(t *testing.T) {
	for _, target := range []string{"linux/amd64", "js/wasm"} {
		t.Run(target, func(t *testing.T) { checkImports(t, target) })
	}
}

func checkImports(t *testing.T, target string) {
	// go/build, not "go list": the test cache does not see what a subprocess reads.
	ctx := build.Default
	ctx.GOOS, ctx.GOARCH, _ = strings.Cut(target, "/")
	ctx.CgoEnabled = target == "linux/amd64"
	seen := 0
	err := filepath.WalkDir("../..", func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); name == "testdata" || name == "tools" || name == "examples" || (strings.HasPrefix(name, ".") && name != ".." && name != "../..") {
			return fs.SkipDir
		}
		p, err := ctx.ImportDir(dir, 0)
		if noGo := (*build.NoGoError)(nil); errors.As(err, &noGo) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel("../..", dir)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if len(p.GoFiles)+len(p.CgoFiles) == 0 || rel == "internal/archtest" {
			return nil // tests only
		}
		seen++
		checkPackage(t, rel, p.Imports)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 15 {
		t.Errorf("only %d packages were looked at", seen)
	}
}

func checkPackage(t *testing.T, rel string, imports []string) {
	allowed, known := mayImport[rel]
	if !known {
		t.Errorf("package %s has no line in the import table", rel)
	}
	for _, imp := range imports {
		if own, ok := strings.CutPrefix(imp, module+"/"); ok {
			if !slices.Contains(allowed, own) {
				t.Errorf("%s imports %s, which the table does not allow", rel, own)
			}
			continue
		}
		for outside, packages := range onlyIn {
			if (imp == outside || strings.HasPrefix(imp, outside+"/")) && !slices.Contains(packages, rel) {
				t.Errorf("%s imports %s, which only %v may", rel, imp, packages)
			}
		}
	}
}
