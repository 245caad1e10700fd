//go:build cgo && !js && wgpu29

package wgpunative

import "strings"

// portable makes WGSL that browsers accept acceptable to the library's compiler: it knows the operations of subgroups without being
// asked, and the directive that asks not at all.
func portable(source string) string { return strings.Replace(source, "enable subgroups;", "", 1) }
