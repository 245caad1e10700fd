package archtest

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestMakeRunsEveryTest holds the lists of packages in the Makefile against the packages that have tests.
func TestMakeRunsEveryTest(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	joined := strings.ReplaceAll(string(text), "\\\n", " ")
	list := regexp.MustCompile(`(?m)^(PLAIN|GPU|BROWSER|REAL) := (.+)$`).FindAllStringSubmatch(joined, -1)
	if len(list) != 4 {
		t.Fatalf("the Makefile has %d lists of packages, not 4", len(list))
	}
	listed := map[string]string{} // pattern to list
	for _, m := range list {
		for _, p := range strings.Fields(m[2]) {
			if other, twice := listed[p]; twice {
				t.Errorf("%s is in %s and in %s", p, other, m[1])
			}
			listed[p] = m[1]
		}
	}
	tested := map[string]bool{}
	err = filepath.WalkDir("../..", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && (name == "testdata" || name == "tools" || name == "bin" || strings.HasPrefix(name, ".") && len(name) > 2) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(file)
		if err == nil && !strings.HasPrefix(string(text), "//go:build js") { // those run in the browser, by internal/browsertest
			tested["./"+strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), "../../")] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(tested) < 20 {
		t.Fatalf("found %d packages with tests", len(tested))
	}
	for dir := range tested {
		if !covered(listed, dir) {
			t.Errorf("%s has tests that no list of the Makefile runs", dir)
		}
	}
	for p := range listed {
		dir := filepath.Join("../..", strings.TrimSuffix(p, "/..."))
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("the Makefile lists %s, which is not there", p)
		}
	}
}

// covered says whether a folder or one above it, with /..., is listed.
func covered(listed map[string]string, dir string) bool {
	if _, ok := listed[dir]; ok {
		return true
	}
	for up := dir; up != "."; up = path.Dir(up) {
		if _, ok := listed["./"+strings.TrimPrefix(up, "./")+"/..."]; ok {
			return true
		}
	}
	return false
}
