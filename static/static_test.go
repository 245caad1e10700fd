package static

import (
	"bytes"
	"compress/gzip"
	"io/fs"
	"path"
	"regexp"
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

// The page has no inline script or style, names only its own files, and by relative addresses.
func TestPageObeysItsPolicy(t *testing.T) {
	t.Parallel()
	files := page(t)
	html := files["index.html"]
	for _, bad := range []string{` style="`, ` onclick=`, ` onload=`, `<style`, `<script>`} {
		if strings.Contains(html, bad) {
			t.Errorf("index.html contains %q", bad)
		}
	}
	for _, m := range regexp.MustCompile(`(?:href|src)="([^"#]+)"`).FindAllStringSubmatch(html, -1) {
		if _, ok := files[m[1]]; !ok {
			t.Errorf("index.html names %q, which is not a file of the page", m[1])
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
			if !strings.Contains(html, `rel="modulepreload" href="`+target+`"`) {
				t.Errorf("index.html does not preload %s", target)
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
		if strings.HasPrefix(file, "js/") && file != "js/strings.js" || file == "index.html" {
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
