package weights

import (
	"fmt"
	"regexp"
	"strings"
)

// targets is a list of modules in quantization_config: names of modules, names of classes, and regular expressions after
// "re:", which have to match from a name's beginning on.
type targets struct {
	names    map[string]bool
	patterns []*regexp.Regexp
	odd      string // a pattern that Go's regexp cannot express, such as one with look-ahead
}

// Limits of a list: names of all modules of a large model, and patterns, which each module is compared with.
const (
	maxTargetNames    = 1 << 17
	maxTargetPatterns = 256
)

func newTargets(list []string) (targets, error) {
	t := targets{names: map[string]bool{}}
	for _, s := range list {
		pattern, ok := strings.CutPrefix(s, "re:")
		if !ok {
			if t.names[s] = true; len(t.names) > maxTargetNames {
				return t, fmt.Errorf("more than %d names", maxTargetNames)
			}
			continue
		}
		if len(t.patterns) == maxTargetPatterns {
			return t, fmt.Errorf("more than %d patterns", maxTargetPatterns)
		}
		re, err := regexp.Compile("^(?:" + pattern + ")")
		if err != nil {
			t.odd = s
			continue
		}
		t.patterns = append(t.patterns, re)
	}
	return t, nil
}

// match says whether the list has a module by name or by pattern.
func (t *targets) match(module string) bool {
	if t.names[module] {
		return true
	}
	for _, re := range t.patterns {
		if re.MatchString(module) {
			return true
		}
	}
	return false
}

// moduleClass is the class of a module that has a matrix.
func moduleClass(module string) string {
	if strings.Contains(module, "embed") {
		return "Embedding"
	}
	return "Linear"
}
