//go:build js && wasm

package webgpujs

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"syscall/js"

	"github.com/pagelight/pagelight/internal/gpu"
)

var _ gpu.Profiler = (*Device)(nil)

// Profile implements gpu.Profiler. Browsers round their clocks, so each command is repeated in its pass until the rounding is a
// twentieth of the pass, and a time is that of one of these repetitions: it holds the way from one dispatch to the next that
// depends on it, and not the beginning and the end of a pass. What the program leaves in its buffers is not what one run leaves.
func (d *Device) Profile(ctx context.Context, p gpu.Program, repeat int) ([]int64, error) {
	if err := d.Err(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	own, ok := p.(*program)
	if !ok || own.d != d || own.released {
		return nil, invalid("profile of a program of another device, or one that was released")
	}
	if repeat < 1 {
		return nil, invalid("profile of %d runs", repeat)
	}
	if own.commands == 0 {
		return nil, nil
	}
	size := 8 * own.commands
	d.roomToRead(size)
	c := make(chan result, 1)
	token := d.expect(c)
	d.f.profile.Invoke(token, own.id, repeat)
	r, err := d.await(ctx, c, token, func() { d.f.forget.Invoke(token) })
	if err != nil {
		return nil, err
	}
	if r.code == codeNoTimestamps {
		return nil, fmt.Errorf("webgpujs: profile: %w: %s", gpu.ErrNoTimestamps, r.message)
	}
	if err := r.err("profile"); err != nil {
		return nil, err
	}
	raw := make([]byte, size)
	js.CopyBytesToGo(raw, d.readScratch)
	ns := make([]int64, own.commands)
	for i := range ns {
		ns[i] = int64(math.Round(math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:]))))
	}
	return ns, nil
}

// roomToRead makes the read scratch large enough for size bytes.
func (d *Device) roomToRead(size int) {
	if d.readSize < size {
		d.readSize = max(64<<10, nextPow2(size))
		d.readScratch = d.f.growRead.Invoke(d.readSize)
	}
}
