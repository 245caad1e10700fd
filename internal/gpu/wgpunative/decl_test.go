//go:build cgo && !js

package wgpunative

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What the declarations repeat must be what the headers of the linked library declare.
func TestDeclarationsMatchHeader(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Skip("the module's source is not here")
	}
	var theirs string
	for _, name := range []string{"webgpu.h", "wgpu.h"} {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), headers, name))
		if err != nil {
			t.Skip("the module's source is not here")
		}
		theirs += plain(string(text))
	}
	text, err := os.ReadFile(decl)
	if err != nil {
		t.Fatal(err)
	}
	ours := plain(string(text))
	counts := map[string]int{}
	for kind, pattern := range map[string]string{
		"struct":   `typedef struct \w+ \{[^}]*\} \w+;`,
		"function": `\w+ (const )?(\* )?wgpu\w+\([^)]*\);`,
		"value":    `WGPU\w+_\w+ = 0x\w+`,
		"type":     `typedef (struct \w+Impl\*|uint\d+_t|WGPUFlags) \w+;`,
		"callback": `typedef void \(\*\w+\)\([^)]*\);`,
	} {
		for _, declaration := range regexp.MustCompile(pattern).FindAllString(ours, -1) {
			counts[kind]++
			if !strings.Contains(theirs, declaration) {
				t.Errorf("not in the library's header: %s", declaration)
			}
		}
	}
	for kind, least := range map[string]int{"struct": 17, "function": 35, "value": 14, "type": 20, "callback": 2} {
		if counts[kind] < least {
			t.Errorf("compared %d of kind %s, expected at least %d", counts[kind], kind, least)
		}
	}
	for _, enum := range regexp.MustCompile(`typedef int32_t (\w+);`).FindAllStringSubmatch(ours, -1) {
		if !strings.Contains(theirs, enum[1]+"_Force32 = 0x7FFFFFFF") {
			t.Errorf("not an enumeration of 32 bits in the library's header: %s", enum[1])
		}
	}
}

// plain is C without comments, attributes and differences of spacing.
func plain(c string) string {
	c = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`).ReplaceAllString(c, "")
	c = regexp.MustCompile(`WGPU_(NULLABLE|EXPORT|\w+_ATTRIBUTE)`).ReplaceAllString(c, "")
	c = strings.Join(strings.Fields(c), " ")
	return strings.NewReplacer(" ;", ";", "( ", "(", " )", ")").Replace(c)
}
