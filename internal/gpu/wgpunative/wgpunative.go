//go:build cgo && !js

// Package wgpunative is the native driver of the device seam: WebGPU by wgpu-native over Vulkan, Metal or Direct3D 12. It owns
// everything that must be known about that library, and nothing above it knows that the library exists.
//
// A Go module brings the library, to be linked statically; a build tag chooses among three of them (lib19.go, lib17.go,
// lib29.go). The Go of these modules is not used: calls go through C code of our own (shim.c), which hides how the versions differ.
//
// The library has faults that decide the shape of this package, some of them in some versions only:
//
//   - A blocking wait takes work for done after 5 s and then shows memory that is not written yet. So there are only polls
//     that do not block, and marks behind submissions to wait for (await, pl_poll).
//   - It keeps the pointers given to a mapping until later, and bindings give it pointers to the Go heap. So the state of a
//     mapping is in C memory.
//   - It ends the process when a submit is invalid. So programs are checked in Go before they reach it, objects know
//     whether they are still alive, and what is left (a lost device) is caught by the guard in guard.c.
//   - Errors outside an error scope panic, and scopes are a stack per device. So every call is inside scopes and inside
//     the device's mutex.
//   - A cgo call costs 50 ns and an error scope more. So a program is a C array that one call replays.
package wgpunative

// #include "shim.h"
import "C"

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/pagelight/pagelight/internal/gpu"
)

// Options chooses a device.
type Options struct {
	// Prefer is the kind of adapter to open, and no other: gpu.KindHardware or gpu.KindSoftware. Empty takes hardware, and
	// software where there is none.
	Prefer gpu.Kind
	// Adapter, if not empty, is a part of the name or the vendor of the adapter, in any case ("h200", "llvmpipe").
	Adapter string
	// DefaultLimits asks for the limits that WebGPU guarantees everywhere instead of all that the adapter has.
	DefaultLimits bool
	// Label names the device in debuggers.
	Label string
}

// Adapters lists what Open can open, best first.
func Adapters() ([]gpu.Info, error) {
	instance, err := newInstance()
	if err != nil {
		return nil, err
	}
	defer C.pl_release_instance(instance)
	found := enumerate(instance)
	infos := make([]gpu.Info, len(found))
	for i, f := range found {
		infos[i] = f.info
		C.pl_release_adapter(f.adapter)
	}
	return infos, nil
}

// Open opens the best adapter that opts allows. The error wraps gpu.ErrNoAdapter when there is none.
func Open(ctx context.Context, opts Options) (gpu.Device, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	instance, err := newInstance()
	if err != nil {
		return nil, err
	}
	found := enumerate(instance)
	i := slices.IndexFunc(found, func(f candidate) bool { return f.suits(opts) })
	if i < 0 {
		names := make([]string, len(found))
		for j, f := range found {
			names[j] = fmt.Sprintf("%s (%s)", f.info.Name, f.info.Kind)
			C.pl_release_adapter(f.adapter)
		}
		C.pl_release_instance(instance)
		if len(found) == 0 && runtime.GOOS == "linux" {
			return nil, fmt.Errorf("%w: Vulkan has no driver here (Mesa has a software one in mesa-vulkan-drivers; NVIDIA's also "+
				"needs the libraries libegl1 and libgl1)", gpu.ErrNoAdapter)
		}
		return nil, fmt.Errorf("%w that suits kind %q and name %q; found: [%s]", gpu.ErrNoAdapter, opts.Prefer, opts.Adapter,
			strings.Join(names, ", "))
	}
	for j, f := range found {
		if j != i {
			C.pl_release_adapter(f.adapter)
		}
	}
	d, err := newDevice(instance, found[i], opts)
	if err != nil {
		C.pl_release_adapter(found[i].adapter)
		C.pl_release_instance(instance)
		return nil, err
	}
	if slices.Contains(d.info.Features, "subgroups") {
		// Without an answer kernels do without subgroups.
		if err := d.askSubgroups(ctx); err != nil && cmp.Or(d.Err(), ctx.Err()) != nil {
			d.Close()
			return nil, err
		}
	}
	return d, nil
}

// prepare does what must be done once before the library is used.
var prepare = sync.OnceFunc(func() {
	C.pl_init()
	// Mesa's device selection layer prints errors where there is no desktop, and only desktops need it.
	if runtime.GOOS == "linux" && os.Getenv("XDG_RUNTIME_DIR") == "" && os.Getenv("MESA_VK_DEVICE_SELECT") == "" {
		_ = os.Setenv("NODEVICE_SELECT", "1") // it fails on names that are not valid only
	}
	// An instance that lives as long as the process keeps the drivers loaded when the last device is closed: NVIDIA's
	// cannot be loaded again without end (after about 30 times it is gone).
	C.pl_create_instance()
})

func newInstance() (C.WGPUInstance, error) {
	prepare()
	raw := C.pl_create_instance()
	if raw == nil {
		return nil, fmt.Errorf("%w: no instance of Vulkan, Metal or Direct3D 12", gpu.ErrNoAdapter)
	}
	return raw, nil
}

// A candidate is an adapter with what is known about it.
type candidate struct {
	adapter C.WGPUAdapter
	info    gpu.Info
	rank    int
}

func (c candidate) suits(opts Options) bool {
	if opts.Prefer != "" && opts.Prefer != c.info.Kind {
		return false
	}
	part := strings.ToLower(opts.Adapter)
	return strings.Contains(strings.ToLower(c.info.Name), part) || strings.Contains(c.info.Vendor, part)
}

// enumerate lists the adapters of instance, best first. The caller releases them.
func enumerate(instance C.WGPUInstance) []candidate {
	var found []candidate
	var adapters [64]C.WGPUAdapter
	count := min(int(C.pl_adapters(instance, &adapters[0], C.size_t(len(adapters)))), len(adapters))
	for _, a := range adapters[:count] {
		var raw C.pl_info
		C.pl_adapter_info(a, &raw)
		info := describe(&raw)
		rank := 1
		switch {
		case info.Kind == gpu.KindSoftware:
			rank = 3
		case raw._type == C.PL_ADAPTER_DISCRETE:
			rank = 0
		case raw._type == C.PL_ADAPTER_UNKNOWN:
			rank = 2
		}
		found = append(found, candidate{a, info, rank})
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return a.rank - b.rank })
	return found
}

// describe puts the library's words about an adapter into ours.
func describe(raw *C.pl_info) gpu.Info {
	info := gpu.Info{
		Kind:    gpu.KindHardware,
		Name:    adapterName(raw),
		Vendor:  vendorName(uint32(raw.vendor_id)),
		Backend: backendName(raw.backend),
		Driver:  driverName,
	}
	if raw._type == C.PL_ADAPTER_CPU || raw.vendor_id == vendorMesa {
		info.Kind = gpu.KindSoftware
	}
	info.BarrierFree = info.Kind == gpu.KindSoftware
	return info
}

// adapterName finds the human name: wgpu 0.19 has the ids as text in the fields for names and the name in the last one.
func adapterName(raw *C.pl_info) string {
	vendor, architecture := C.GoString(&raw.vendor[0]), C.GoString(&raw.architecture[0])
	candidates := []string{C.GoString(&raw.device[0]), C.GoString(&raw.description[0]), architecture, vendor}
	if strings.HasPrefix(vendor, "0x") {
		candidates[0], candidates[1] = candidates[1], candidates[0]
	}
	for _, s := range candidates {
		if s != "" && !strings.HasPrefix(s, "0x") {
			return s
		}
	}
	return fmt.Sprintf("adapter %04x:%04x", uint32(raw.vendor_id), uint32(raw.device_id))
}

// vendorMesa is the id of Mesa's software drivers (llvmpipe), which Khronos gave out as they have no PCI id.
const vendorMesa = 0x10005

func vendorName(id uint32) string {
	switch id {
	case 0x10de:
		return "nvidia"
	case 0x1002, 0x1022:
		return "amd"
	case 0x8086:
		return "intel"
	case 0x106b:
		return "apple"
	case 0x13b5:
		return "arm"
	case 0x5143:
		return "qualcomm"
	case 0x1ae0:
		return "google"
	case 0x1414:
		return "microsoft"
	case vendorMesa:
		return "mesa"
	}
	return fmt.Sprintf("0x%04x", id)
}

func backendName(b C.int32_t) string {
	switch b {
	case C.PL_BACKEND_VULKAN:
		return "Vulkan"
	case C.PL_BACKEND_METAL:
		return "Metal"
	case C.PL_BACKEND_D3D12:
		return "Direct3D 12"
	}
	return "other"
}
