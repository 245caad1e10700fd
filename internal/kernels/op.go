package kernels

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/pagelight/pagelight/internal/gpu"
)

// dispatch is one kernel of an op.
type dispatch struct {
	pipeline *pipeline
	group    gpu.BindGroup
	grid     func(rows int) [3]uint32
}

// op is what every Set method returns.
type op struct {
	name    string
	rows    int // largest bucket
	choose  func(rows int) []*dispatch
	long    func(rows int) []*dispatch // instead of choose in RecordLong, if not nil
	traffic func(rows int) int64
}

// Name implements Op.
func (o *op) Name() string { return o.name }

// Traffic implements Op.
func (o *op) Traffic(rows int) int64 { return o.traffic(rows) }

// Record implements Op.
func (o *op) Record(rows int) []gpu.Command { return o.record(rows, o.choose) }

// RecordLong implements Op.
func (o *op) RecordLong(rows int) []gpu.Command {
	if o.long == nil {
		return o.Record(rows)
	}
	return o.record(rows, o.long)
}

func (o *op) record(rows int, choose func(rows int) []*dispatch) []gpu.Command {
	if rows < 1 || rows > o.rows {
		panic(fmt.Sprintf("BUG: %s recorded for %d rows, built for %d", o.name, rows, o.rows))
	}
	var commands []gpu.Command
	for _, d := range choose(rows) {
		if d.pipeline.made == nil || d.group == nil {
			panic("BUG: " + d.pipeline.desc.Label + " recorded before Compile")
		}
		commands = append(commands, gpu.Command{Pipeline: d.pipeline.made, BindGroup: d.group, Grid: d.grid(rows)})
	}
	return commands
}

// always is the choice of an op that has one way to run.
func always(list ...*dispatch) func(int) []*dispatch {
	return func(int) []*dispatch { return list }
}

// encode is the content of a Params struct of u32 and f32 fields.
func encode(params any) []byte {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, params); err != nil {
		panic("BUG: " + err.Error())
	}
	return b.Bytes()
}

// elementwise is the grid of a kernel that has an invocation for each of perRow elements of a row.
func (s *Set) elementwise(perRow, wg int) func(rows int) [3]uint32 {
	return func(rows int) [3]uint32 {
		return gpu.Grid(ceil(rows*perRow, wg), 1, s.limits.MaxWorkgroupsPerDim)
	}
}

func ceil(a, b int) int { return (a + b - 1) / b }

// checker collects the first fault among an op's arguments.
type checker struct {
	op  string
	err error
}

// want records a fault unless ok.
func (c *checker) want(ok bool, format string, args ...any) {
	if !ok && c.err == nil {
		c.err = fmt.Errorf("kernels: %s: %s", c.op, fmt.Sprintf(format, args...))
	}
}

// buffer demands that b has room for count elements of 4 bytes.
func (c *checker) buffer(name string, b gpu.Buffer, count int) {
	if c.err != nil {
		return
	}
	c.want(b != nil, "%s is missing", name)
	if c.err == nil {
		c.want(b.Size() >= 4*int64(count), "%s has %d bytes, needs %d", name, b.Size(), 4*int64(count))
	}
}

// positive demands that each value is at least 1 and fits the 32-bit arithmetic of the kernels.
func (c *checker) positive(name string, v int) {
	c.want(v >= 1 && v < 1<<31, "%s is %d", name, v)
}

// headDim demands a head dimension that the kernels know.
func (c *checker) headDim(d int) {
	c.want(d >= 16 && d <= 256 && d%16 == 0, "head dimension %d is not a multiple of 16 up to 256", d)
}

// weight demands that w is whole: its parts in order, each with its data.
func (c *checker) weight(w *Weight) {
	c.positive("rows of the weight", w.Rows)
	c.want(w.K >= 8 && w.K%8 == 0, "K is %d, not a multiple of 8", w.K)
	next := 0
	for i, p := range w.Parts {
		c.want(p.Row0 == next && p.Rows >= 1, "part %d has rows %d to %d, expected from %d", i, p.Row0, p.Row0+p.Rows, next)
		next += p.Rows
		if c.err != nil {
			return
		}
		if err := p.Format.Check(w.K); err != nil {
			c.want(false, "part %d: %v", i, err)
			return
		}
		// Kernels read vec4<u32>, so the last row must not end inside one.
		c.buffer(fmt.Sprintf("data of part %d (padded to 16 bytes)", i), p.Data, 4*ceil(p.Rows*p.Format.RowBytes(w.K), 16))
		if n := p.Format.ScaleWords(w.K); n > 0 {
			c.buffer(fmt.Sprintf("scales of part %d", i), p.Scales, p.Rows*n)
		}
	}
	c.want(next == w.Rows, "the parts have %d rows, not %d", next, w.Rows)
}

// bit is a switch as a constant of a kernel.
func bit(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}
