//go:build cgo && !js && wgpu17 && !wgpu29

package wgpunative

import (
	"go/token"
	"go/types"
	"regexp"
	"strings"
)

var (
	constant      = regexp.MustCompile(`(?m)^const (\w+)(: *u32)? *= *([^;]+);`)
	name          = regexp.MustCompile(`\b[A-Za-z_]\w*\b`)
	unsigned      = regexp.MustCompile(`\b(\d+)u\b`)
	digits        = regexp.MustCompile(`^\d+$`)
	workgroupSize = regexp.MustCompile(`@workgroup_size\(([^)]*)\)`)
)

// portable makes WGSL that browsers accept acceptable to the library's compiler: it takes no computed constant as the size of an
// array, and no name in @workgroup_size. So constants of integers get their values, and these take the place of names there.
func portable(source string) string {
	values := map[string]string{}
	source = constant.ReplaceAllStringFunc(source, func(declaration string) string {
		m := constant.FindStringSubmatch(declaration)
		expression := unsigned.ReplaceAllString(m[3], "$1")
		expression = name.ReplaceAllStringFunc(expression, func(n string) string {
			if value, ok := values[n]; ok {
				return value
			}
			return n
		})
		// WGSL's arithmetic of constants is Go's, as far as it is used for sizes.
		result, err := types.Eval(token.NewFileSet(), nil, token.NoPos, expression)
		if err != nil || result.Value == nil || !digits.MatchString(result.Value.ExactString()) || m[2] == "" && !strings.Contains(m[3], "u") {
			return declaration
		}
		values[m[1]] = result.Value.ExactString()
		return "const " + m[1] + m[2] + " = " + values[m[1]] + "u;"
	})
	return workgroupSize.ReplaceAllStringFunc(source, func(attribute string) string {
		sizes := strings.Split(workgroupSize.FindStringSubmatch(attribute)[1], ",")
		for i, size := range sizes {
			size = strings.TrimSpace(size)
			if value, ok := values[size]; ok {
				size = value
			}
			sizes[i] = size
		}
		return "@workgroup_size(" + strings.Join(sizes, ", ") + ")"
	})
}
