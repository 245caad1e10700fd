package runner

import (
	"fmt"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kvcache"
	"github.com/pagelight/pagelight/internal/model"
	"github.com/pagelight/pagelight/internal/sched"
)

// inputs holds what the kernels read about a step, as it was last written to the device, so that only what changed is
// written again: a decode step writes 16 bytes for each sequence, and a word more when a sequence enters a new block.
// Memory is taken once, for the largest step.
type inputs struct {
	tokens []uint32 // [tokens, 4]: id, position, slot, sequence
	rows   []uint32 // [logits]: which tokens want logits

	longest int // positions of the longest context

	// What the device has.
	step   [2][4]uint32 // {rows of tokens, 0, 0, 0}, {rows of logits, 0, 0, 0}
	picked []uint32     // the first entries of Forward.LogitRows
	tables []uint32     // [seqs, maxBlocks]
	filled []int        // entries of each row of tables that have been written
}

func newInputs(l Limits, maxBlocks int) inputs {
	return inputs{
		tokens: make([]uint32, 0, 4*l.MaxTokens), rows: make([]uint32, 0, l.MaxLogits), picked: make([]uint32, 0, l.MaxLogits),
		tables: make([]uint32, l.MaxSeqs*maxBlocks), filled: make([]int, l.MaxSeqs),
	}
}

// forget has everything written again: somebody else has used the buffers.
func (in *inputs) forget() {
	in.step = [2][4]uint32{{^uint32(0)}, {^uint32(0)}}
	in.picked = in.picked[:0]
	clear(in.filled)
}

// write brings the device up to date for a plan. Chunk s of the plan has row s of the block tables.
func (in *inputs) write(dev gpu.Device, f *model.Forward, p *sched.Plan) error {
	if len(p.Chunks) > len(in.filled) || p.NumTokens > cap(in.tokens)/4 || p.NumLogits > cap(in.rows) {
		panic(fmt.Sprintf("BUG: runner: a step of %d sequences, %d tokens and %d rows of logits, opened for %d, %d and %d",
			len(p.Chunks), p.NumTokens, p.NumLogits, len(in.filled), cap(in.tokens)/4, cap(in.rows)))
	}
	in.tokens, in.rows, in.longest = in.tokens[:0], in.rows[:0], 0
	for s := range p.Chunks {
		c := &p.Chunks[s]
		in.longest = max(in.longest, c.Start+len(c.Tokens))
		for i, id := range c.Tokens {
			pos := c.Start + i
			if i >= len(c.Tokens)-c.Logits {
				in.rows = append(in.rows, uint32(len(in.tokens)/4))
			}
			in.tokens = append(in.tokens, uint32(id), uint32(pos), c.Seq.Table.Slot(pos), uint32(s))
		}
		if err := in.writeTable(dev, f, s, c.Seq.Table); err != nil {
			return err
		}
	}
	if err := dev.WriteBuffer(f.Tokens, 0, gpu.Bytes(in.tokens)); err != nil {
		return err
	}
	for i, n := range [...]int{p.NumTokens, p.NumLogits} {
		if in.step[i][0] == uint32(n) {
			continue
		}
		in.step[i][0] = uint32(n)
		if err := dev.WriteBuffer(f.Step, int64(i)*model.StepSlot, gpu.Bytes(in.step[i][:])); err != nil {
			return err
		}
	}
	first, end := changed(in.picked, in.rows)
	if first == end {
		return nil
	}
	in.picked = append(in.picked[:first], in.rows[first:end]...)
	return dev.WriteBuffer(f.LogitRows, 4*int64(first), gpu.Bytes(in.picked[first:end]))
}

// writeTable writes what row s of the block tables lacks of a sequence's table: in most steps nothing, since tables only
// grow and sequences keep their order. What lies past the end of a table is never read, so it stays.
func (in *inputs) writeTable(dev gpu.Device, f *model.Forward, s int, table kvcache.Table) error {
	base := s * f.MaxBlocksPerSeq
	row := in.tables[base : base+f.MaxBlocksPerSeq]
	first := 0
	for n := min(len(table), in.filled[s]); first < n && row[first] == uint32(table[first]); {
		first++
	}
	if first == len(table) {
		return nil
	}
	for i := first; i < len(table); i++ {
		row[i] = uint32(table[i])
	}
	in.filled[s] = max(in.filled[s], len(table))
	return dev.WriteBuffer(f.BlockTables, 4*int64(base+first), gpu.Bytes(row[first:len(table)]))
}

// changed is the stretch of now from the first entry on that differs from old, or nothing.
func changed(old, now []uint32) (first, end int) {
	for n := min(len(old), len(now)); first < n && old[first] == now[first]; {
		first++
	}
	return first, len(now)
}
