//go:build cgo && !js

package wgpunative

import (
	"regexp"
	"strings"
)

var (
	workgroupSize = regexp.MustCompile(`@workgroup_size\(([^)]*)\)`)
	constant      = regexp.MustCompile(`(?m)^const (\w+)(?:: *u32)? *= *(\d+)u?;`)
)

// portable makes WGSL that browsers accept acceptable to the library's compiler, which differs in two points.
func portable(source string, subgroupsDirective, namedSizes bool) string {
	if !subgroupsDirective {
		// It knows the operations without being asked, and the directive not at all.
		source = strings.Replace(source, "enable subgroups;", "", 1)
	}
	if namedSizes {
		return source
	}
	values := map[string]string{}
	for _, m := range constant.FindAllStringSubmatch(source, -1) {
		values[m[1]] = m[2]
	}
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
