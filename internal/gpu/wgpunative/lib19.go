//go:build cgo && !js && !wgpu17 && !wgpu29

package wgpunative

// #cgo CFLAGS: -DPL_WGPU=19
import "C"

// The package links wgpu 0.19.4 (on some platforms 22.1) as github.com/cogentcore/webgpu brings it.
import _ "github.com/cogentcore/webgpu/wgpu"

const (
	driverName = "wgpunative"
	// module is what brings the library, and headers is where it has the headers that decl19.h repeats.
	module  = "github.com/cogentcore/webgpu"
	headers = "wgpu/lib"
	decl    = "decl19.h"
	// subgroupsDirective says whether the library's compiler knows "enable subgroups;".
	subgroupsDirective = false
	// namedSizes says whether the compiler takes names of constants in @workgroup_size.
	namedSizes = true
	// exhaustionLoses says whether the library gives the device up when there is no memory to stage a write.
	exhaustionLoses = false
)
