package wgsl

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

//go:generate go test -run TestDocs -update .

var update = flag.Bool("update", false, "rewrite docs/kernels.md")

// headerParts are what the comment at the top of each kernel must explain, in this order.
var headerParts = []string{"Shapes", "Grid", "Traffic", "Storage", "Numerics", "Needs", "Ref"}

// header is the comment at the top of a file, by part; "" is what comes before the first part.
func header(name string) map[string]string {
	parts, part := map[string]string{}, ""
	for line := range strings.Lines(text(name)) {
		line, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "//")
		if !ok {
			break
		}
		line = strings.TrimPrefix(line, " ")
		if word, rest, ok := strings.Cut(line, " "); ok && slices.Contains(headerParts, word) {
			part, line = word, rest
		}
		if parts[part] != "" {
			parts[part] += "\n"
		}
		parts[part] += strings.TrimSpace(line)
	}
	return parts
}

func TestEveryFileIsInTheTable(t *testing.T) {
	known := LibFiles()
	for _, k := range Kernels() {
		known = append(known, k.Name)
	}
	names, err := fs.Glob(files, "*.wgsl")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, name := range names {
		found = append(found, strings.TrimSuffix(name, ".wgsl"))
	}
	slices.Sort(known)
	if !slices.Equal(known, found) {
		t.Errorf("the table has %v, the folder %v", known, found)
	}
}

func TestHeadersAreComplete(t *testing.T) {
	for _, k := range Kernels() {
		parts := header(k.Name)
		if !strings.HasPrefix(parts[""], k.Name+": ") {
			t.Errorf("%s: the first line does not begin with the name", k.Name)
		}
		for _, part := range headerParts {
			if parts[part] == "" {
				t.Errorf("%s: the header has no %s", k.Name, part)
			}
		}
		for _, b := range k.Bindings[2:] {
			if !regexp.MustCompile(`(?m)^` + b.Name + ` +\[`).MatchString(parts["Shapes"]) {
				t.Errorf("%s: Shapes do not have %s", k.Name, b.Name)
			}
		}
		if !strings.Contains(parts["Ref"], ", "+k.Ref+".") {
			t.Errorf("%s: Ref is %q, the table has %s", k.Name, parts["Ref"], k.Ref)
		}
		for _, lib := range k.Libs {
			if !strings.Contains(parts["Needs"], lib) {
				t.Errorf("%s: Needs does not name %s", k.Name, lib)
			}
		}
		if k.Weights != strings.Contains(parts["Needs"], "lib_weight") {
			t.Errorf("%s: Needs and the table differ about weights", k.Name)
		}
	}
	for _, lib := range LibFiles() {
		if !strings.HasPrefix(text(lib), "// "+lib+": ") {
			t.Errorf("%s: the first line does not begin with the name", lib)
		}
	}
}

var (
	bindingLine = regexp.MustCompile(`(?m)^@group\(0\) @binding\((\d+)\) var<([a-z_, ]+)> ([a-z_]+): `)
	entryLine   = regexp.MustCompile(`(?m)^@compute @workgroup_size\(WG\)\nfn ([a-z0-9_]+)\(`)
	paramLine   = regexp.MustCompile(`(?m)^  ([a-z0-9_]+): [uf]32,( // .+)?$`)
)

func TestTextsMatchTheTable(t *testing.T) {
	for _, k := range Kernels() {
		src := text(k.Name)
		var got []Binding
		for i, m := range bindingLine.FindAllStringSubmatch(src, -1) {
			if m[1] != strconv.Itoa(i) {
				t.Errorf("%s: binding %s is out of order", k.Name, m[1])
			}
			access := map[string]Access{"uniform": Uniform, "storage, read": Read, "storage, read_write": ReadWrite}
			got = append(got, Binding{m[3], access[m[2]]})
		}
		if !slices.Equal(got, k.Bindings) {
			t.Errorf("%s: the text has the bindings %v, the table %v", k.Name, got, k.Bindings)
		}
		storage := 0
		for _, b := range k.Bindings {
			if b.Access != Uniform {
				storage++
			}
		}
		if storage > 8 {
			t.Errorf("%s: %d storage buffers, WebGPU guarantees 8", k.Name, storage)
		}
		if m := entryLine.FindStringSubmatch(src); m == nil || m[1] != k.Name {
			t.Errorf("%s: the entry point is %v", k.Name, m)
		}
		for _, c := range k.Tuning {
			if _, err := Source(k.Name, nil, Consts{c: 1}); err != nil {
				t.Error(err)
			}
		}
		if barrier := strings.Contains(src, "Barrier()") || strings.Contains(src, "workgroupUniformLoad"); k.Serial && barrier {
			t.Errorf("%s: a serial kernel has a barrier", k.Name)
		}
		start := strings.Index(src, "struct Params {")
		params, _, _ := strings.Cut(src[start:], "\n}")
		for i, m := range paramLine.FindAllStringSubmatch(params, -1) {
			if m[2] == "" && !strings.HasPrefix(m[1], "pad") {
				t.Errorf("%s: field %d of Params, %s, has no comment", k.Name, i, m[1])
			}
		}
	}
}

// TestPortableSubset looks for what naga 0.19 or Tint refuse and what is easily written by mistake.
func TestPortableSubset(t *testing.T) {
	names, err := fs.Glob(files, "*.wgsl")
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		`(?m)^(enable|requires|diagnostic) `, `\boverride\b`, `\bf16>`, `\bsubgroup`, `ptr<(workgroup|storage)`, `const_assert`,
		`dot4[IU]8Packed`, `unpack4x[IU]8\b`, `: f32 = -?\d+;`, `\t`, `[ \t]+\n`,
	} {
		re := regexp.MustCompile(bad)
		for _, name := range names {
			if strings.HasSuffix(name, subgroups+".wgsl") && strings.Contains(bad, "subgroup") {
				continue
			}
			data, err := fs.ReadFile(files, name)
			if err != nil {
				t.Fatal(err)
			}
			if m := re.Find(data); m != nil {
				t.Errorf("%s: has %q", name, m)
			}
		}
	}
}

func TestSource(t *testing.T) {
	src, err := Source("matvec", []string{"lib_dot", "lib_weight_q4"}, Consts{"WG": 64, "GROUP": 128})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"const WG: u32 = 64u;    //", "const GROUP: u32 = 128u;", "fn dot_octet(", "const LANES: u32 = 32u;"} {
		if !strings.Contains(src, want) {
			t.Errorf("the source has no %q", want)
		}
	}
	for name, f := range map[string]func() (string, error){
		"wgsl: matvec declares no constant GROUP, OTHER": func() (string, error) {
			return Source("matvec", nil, Consts{"GROUP": 1, "OTHER": 2, "WG": 32})
		},
		"wgsl: no file nothing.wgsl": func() (string, error) { return Source("nothing", nil, nil) },
		"wgsl: no file lib_x.wgsl":   func() (string, error) { return Source("matvec", []string{"lib_x"}, nil) },
	} {
		if _, err := f(); err == nil || err.Error() != name {
			t.Errorf("got %v, want %s", err, name)
		}
	}
}

// TestDocs holds docs/kernels.md against the headers; -update rewrites it.
func TestDocs(t *testing.T) {
	const path = "../docs/kernels.md"
	want := docs()
	if *update {
		if err := os.MkdirAll("../docs", 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/kernels.md is not what the headers say: go generate ./wgsl")
	}
}

// docs is docs/kernels.md.
func docs() string {
	var b strings.Builder
	b.WriteString("# Kernels\n\nWritten by `go generate ./wgsl` from the table in wgsl/kernels.go and from the headers of the files.\n\n")
	b.WriteString("Binding 0 of every kernel is its `Params`, binding 1 the `Step`: the number of rows that a step really has. Grids are\n" +
		"recorded for a bucket of at least as many rows, and surplus invocations write nothing. Activations are f32. Kernels\n" +
		"marked *serial* have no barriers and are what software adapters run.\n\n")
	b.WriteString("| kernel | does | reads | writes | set by the engine | ref |\n|---|---|---|---|---|---|\n")
	for _, k := range Kernels() {
		first, _, _ := strings.Cut(header(k.Name)[""], "\n")
		does := strings.TrimSuffix(strings.TrimPrefix(first, k.Name+": "), ".")
		name := "[" + k.Name + "](../wgsl/" + k.Name + ".wgsl)"
		if k.Serial {
			name += " *serial*"
		}
		var reads, writes []string
		for _, binding := range k.Bindings[2:] {
			if binding.Access == ReadWrite {
				writes = append(writes, binding.Name)
			} else {
				reads = append(reads, binding.Name)
			}
		}
		tuning := slices.Clone(k.Tuning)
		if k.Weights {
			tuning = append(tuning, "GROUP")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", name, does, strings.Join(reads, ", "), strings.Join(writes, ", "),
			strings.Join(tuning, ", "), k.Ref)
	}
	b.WriteString("\nKernels that read weights are compiled with one of these files, and its constants, by the format of the weights\n" +
		"(internal/kernels/weight_lib.go):\n\n| file | weights |\n|---|---|\n")
	for _, lib := range LibFiles() {
		if strings.HasPrefix(lib, WeightLib("")) {
			all := strings.ReplaceAll(header(lib)[""], "\n", " ")
			first, _, _ := strings.Cut(strings.TrimPrefix(all, lib+": "), ". ")
			fmt.Fprintf(&b, "| [%s](../wgsl/%s.wgsl) | %s |\n", lib, lib, strings.TrimSuffix(first, "."))
		}
	}
	for _, k := range Kernels() {
		parts := header(k.Name)
		fmt.Fprintf(&b, "\n## %s\n\n```\n%s\n", k.Name, strings.TrimRight(parts[""], "\n"))
		for _, part := range headerParts {
			fmt.Fprintf(&b, "\n%-8s %s", part, strings.ReplaceAll(parts[part], "\n", "\n         "))
		}
		b.WriteString("\n```\n")
	}
	return b.String()
}
