//go:build cgo && !js && !wgpu17 && !wgpu29

package wgpunative

// portable makes WGSL that browsers accept acceptable to the library's compiler. Kernels are written so that nothing is to do.
func portable(source string) string { return source }
