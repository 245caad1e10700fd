package static

import (
	"bytes"
	"compress/gzip"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// weight is the most that the page may weigh without WASM, compressed.
const weight = 150_000

func page(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(name, "dist/") {
			return err
		}
		b, err := fs.ReadFile(FS(), name)
		files[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestPageIsLight(t *testing.T) {
	t.Parallel()
	total := 0
	for name, text := range page(t) {
		if strings.Contains(name, "LICENSE") || name == "vendor/VERSIONS" {
			continue // nothing loads them
		}
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		total += b.Len()
	}
	if total > weight {
		t.Errorf("the page weighs %d bytes compressed, more than %d", total, weight)
	}
}

// pages are the documents.
var pages = []string{"index.html", "bench.html"}

// The page has no inline script or style, names only its own files, and by relative addresses.
func TestPageObeysItsPolicy(t *testing.T) {
	t.Parallel()
	files := page(t)
	for _, name := range pages {
		html := files[name]
		for _, bad := range []string{` style="`, ` onclick=`, ` onload=`, `<style`, `<script>`} {
			if strings.Contains(html, bad) {
				t.Errorf("%s contains %q", name, bad)
			}
		}
		for _, m := range regexp.MustCompile(`(?:href|src)="([^"#]+)"`).FindAllStringSubmatch(html, -1) {
			if _, ok := files[m[1]]; !ok && m[1] != "./" {
				t.Errorf("%s names %q, which is not a file of the page", name, m[1])
			}
		}
	}
	sinks := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|setAttribute\("style"|\beval\(|new Function`)
	imports := regexp.MustCompile(`(?m)^import .* from "([^"]+)";`)
	for name, text := range files {
		if !strings.HasPrefix(name, "js/") {
			continue
		}
		if found := sinks.FindString(text); found != "" {
			t.Errorf("%s uses %s", name, found)
		}
		for _, m := range imports.FindAllStringSubmatch(text, -1) {
			target := path.Join("js", m[1])
			if _, ok := files[target]; !ok {
				t.Errorf("%s imports %q, which is not a file of the page", name, m[1])
			}
			for _, html := range pages {
				if preloads := func(module string) bool {
					return strings.Contains(files[html], `rel="modulepreload" href="`+module+`"`)
				}; preloads(name) && !preloads(target) {
					t.Errorf("%s preloads %s and not %s, which that imports", html, name, target)
				}
			}
		}
	}
}

// Every sentence has its two languages, every one that is asked for exists, and none is left over.
func TestStringsAreComplete(t *testing.T) {
	t.Parallel()
	files := page(t)
	table := map[string]bool{}
	line := regexp.MustCompile(`(?m)^  (\w+): \["((?:[^"\\]|\\.)+)", "((?:[^"\\]|\\.)+)"\],`)
	name := regexp.MustCompile(`\{\w+\}`)
	for _, m := range line.FindAllStringSubmatch(files["js/strings.js"], -1) {
		table[m[1]] = true
		english, chinese := map[string]bool{}, map[string]bool{}
		for _, v := range name.FindAllString(m[2], -1) {
			english[v] = true
		}
		for _, v := range name.FindAllString(m[3], -1) {
			chinese[v] = true
		}
		for v := range english {
			if !chinese[v] {
				t.Errorf("%s: the Chinese sentence lacks %s", m[1], v)
			}
		}
		for v := range chinese {
			if !english[v] {
				t.Errorf("%s: the English sentence lacks %s", m[1], v)
			}
		}
	}
	if rows := strings.Count(files["js/strings.js"], `", "`); rows < len(table) || len(table) < 100 {
		t.Fatalf("read %d sentences of strings.js", len(table))
	}
	used := map[string]bool{}
	var code strings.Builder
	for file, text := range files {
		if strings.HasPrefix(file, "js/") && file != "js/strings.js" || slices.Contains(pages, file) {
			code.WriteString(text)
		}
	}
	asked := regexp.MustCompile(`\bt\("(\w+)"|data-t(?:-label|-placeholder)?"?[=:] ?"(\w+)"`)
	for _, m := range asked.FindAllStringSubmatch(code.String(), -1) {
		key := m[1] + m[2]
		if !table[key] {
			t.Errorf("the page asks for %q, which strings.js lacks", key)
		}
		used[key] = true
	}
	for key := range table {
		if !used[key] && !strings.Contains(code.String(), `"`+key+`"`) && !strings.HasPrefix(key, "kind_") {
			t.Errorf("%q of strings.js is used nowhere", key)
		}
	}
}
