//go:build cgo && !js

package wgpunative

import (
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"

	"github.com/pagelight/pagelight/internal/gpu"
)

//go:embed subgroups.wgsl
var subgroupSizes string

// askSubgroups finds the size of subgroups by asking a kernel. Drivers that choose among several sizes may take another one for
// another kernel; what follows from the size is checked in each.
func (d *device) askSubgroups(ctx context.Context) error {
	layout := []gpu.BindingKind{gpu.BindReadWrite}
	made, err := d.NewPipelines(ctx, []gpu.PipelineDesc{{Label: "subgroup_sizes", Kernel: "subgroup_sizes", Source: subgroupSizes, Layout: layout}}, nil)
	if err != nil {
		return err
	}
	defer made[0].Release()
	sizes, err := d.NewBuffer("subgroup sizes", 4, gpu.UsageStorage|gpu.UsageCopySrc)
	if err != nil {
		return err
	}
	defer sizes.Release()
	back, err := d.NewBuffer("subgroup sizes to read", 4, gpu.UsageMapRead|gpu.UsageCopyDst)
	if err != nil {
		return err
	}
	defer back.Release()
	group, err := d.NewBindGroup("subgroup sizes", layout, []gpu.Binding{{Buffer: sizes}})
	if err != nil {
		return err
	}
	defer group.Release()
	p, err := d.NewProgram("subgroup sizes", []gpu.Command{
		{Pipeline: made[0], BindGroup: group, Grid: [3]uint32{1, 1, 1}}, {CopySrc: sizes, CopyDst: back, CopySize: 4},
	})
	if err != nil {
		return err
	}
	defer p.Release()
	if err := d.Submit(p); err != nil {
		return err
	}
	raw := make([]byte, 4)
	if err := d.Read(ctx, back, 0, raw); err != nil {
		return err
	}
	size := int(binary.LittleEndian.Uint32(raw))
	if size < 1 || size > 128 || size&(size-1) != 0 {
		return fmt.Errorf("%s: subgroups of %d members", d.info.Name, size)
	}
	d.info.SubgroupMin, d.info.SubgroupMax = size, size
	return nil
}
