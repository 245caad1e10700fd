//go:build cgo && !js && wgpu17 && !wgpu29

package wgpunative

// #cgo CFLAGS: -DPL_WGPU=17
import "C"

// The package links wgpu 0.17.0 as github.com/rajveermalviya/go-webgpu brings it.
import _ "github.com/rajveermalviya/go-webgpu/wgpu"

const (
	driverName = "wgpunative (wgpu 17)"
	// module is what brings the library, and headers is where it has the headers that decl17.h repeats.
	module  = "github.com/rajveermalviya/go-webgpu/wgpu"
	headers = "lib"
	decl    = "decl17.h"
	// subgroupsDirective says whether the library's compiler knows "enable subgroups;".
	subgroupsDirective = false
	// namedSizes says whether the compiler takes names of constants in @workgroup_size.
	namedSizes = false
	// exhaustionLoses says whether the library gives the device up when there is no memory to stage a write.
	exhaustionLoses = false
)
