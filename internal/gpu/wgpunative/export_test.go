//go:build cgo && !js

package wgpunative

import "github.com/pagelight/pagelight/internal/gpu"

// ExhaustionLoses is what the linked library does when there is no memory to stage a write.
const ExhaustionLoses = exhaustionLoses

// LeaveMapped maps b, which has gpu.UsageMapRead, and leaves it so. The library then ends the process at the next submit
// that uses b, as it does when a GPU is lost: there is no other way to a submit that fails.
func LeaveMapped(b gpu.Buffer) error {
	x := b.(*buffer)
	return x.d.startMap(x, 0, x.size)
}
