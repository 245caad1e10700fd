package runner

import (
	"slices"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/model"
	"github.com/pagelight/pagelight/internal/sched"
)

// inputs holds what the kernels read about a step, as it was last written to the device, so that only what changed is
// written again: a decode step writes 16 bytes.
type inputs struct {
	tokens []uint32 // [tokens, 4]: id, position, slot, sequence
	rows   []uint32 // [logits]: which tokens want logits
	tables []uint32 // [seqs, maxBlocks]
	step   [2]uint32

	oldTables []uint32
	oldRows   []uint32
	oldStep   [2]uint32
}

func (in *inputs) write(dev gpu.Device, f *model.Forward, p *sched.Plan) error {
	in.tokens, in.rows = in.tokens[:0], in.rows[:0]
	in.tables = in.tables[:0]
	row := uint32(0)
	for s, c := range p.Chunks {
		for i, id := range c.Tokens {
			pos := c.Start + i
			in.tokens = append(in.tokens, uint32(id), uint32(pos), c.Seq.Table.Slot(pos), uint32(s))
			if i >= len(c.Tokens)-c.Logits {
				in.rows = append(in.rows, row)
			}
			row++
		}
		in.tables = slices.Grow(in.tables, f.MaxBlocksPerSeq)[:(s+1)*f.MaxBlocksPerSeq]
		table := in.tables[s*f.MaxBlocksPerSeq:]
		for i, b := range c.Seq.Table {
			table[i] = uint32(b)
		}
		clear(table[len(c.Seq.Table):])
	}
	in.step = [2]uint32{uint32(p.NumTokens), uint32(p.NumLogits)}

	if err := dev.WriteBuffer(f.Tokens, 0, gpu.Bytes(in.tokens)); err != nil {
		return err
	}
	if in.step != in.oldStep {
		for i, n := range in.step {
			if err := dev.WriteBuffer(f.Step, int64(i)*model.StepSlot, gpu.Bytes([]uint32{n, 0, 0, 0})); err != nil {
				return err
			}
		}
		in.oldStep = in.step
	}
	if err := writeChanged(dev, f.LogitRows, in.rows, &in.oldRows); err != nil {
		return err
	}
	return writeChanged(dev, f.BlockTables, in.tables, &in.oldTables)
}

// writeChanged writes now where the device still has something else.
func writeChanged(dev gpu.Device, dst gpu.Buffer, now []uint32, old *[]uint32) error {
	if len(now) == 0 || len(now) <= len(*old) && slices.Equal(now, (*old)[:len(now)]) {
		return nil
	}
	*old = append((*old)[:0], now...)
	return dev.WriteBuffer(dst, 0, gpu.Bytes(now))
}
