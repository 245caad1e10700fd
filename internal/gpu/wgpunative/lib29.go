//go:build cgo && !js && wgpu29

package wgpunative

// #cgo CFLAGS: -DPL_WGPU=29
import "C"

// The package links wgpu 29 as github.com/oliverbestmann/webgpu brings it.
import _ "github.com/oliverbestmann/webgpu/wgpu"

const (
	driverName = "wgpunative (wgpu 29)"
	// module is what brings the library, and headers is where it has the headers that decl29.h repeats.
	module  = "github.com/oliverbestmann/webgpu"
	headers = "wgpu/lib/linux/amd64"
	decl    = "decl29.h"
	// subgroupsDirective says whether the library's compiler knows "enable subgroups;".
	subgroupsDirective = false
	// namedSizes says whether the compiler takes names of constants in @workgroup_size.
	namedSizes = true
	// exhaustionLoses says whether the library gives the device up when there is no memory to stage a write.
	exhaustionLoses = true
)
