package runner

import (
	"context"
	"fmt"
	"math"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/model"
	"github.com/pagelight/pagelight/internal/sample"
	"github.com/pagelight/pagelight/internal/sched"
)

// TopK is how many candidates a step with WantTop gives for a row: what to ask a sample.Sampler's Draw for.
const TopK = model.TopK

// top is what runs and reads back candidates.
type top struct {
	back  gpu.Buffer // [MaxLogits] (f32, f32) sums, then [MaxLogits, TopK] (f32, u32) candidates
	words []uint32   // the same on the host
	draws []uint32   // [rows, 4], as the kernels read them
	rows  []sample.Top
	ids   []int32             // [MaxLogits, TopK]
	vals  []float32           // [MaxLogits, TopK]
	row   map[int]gpu.Program // by row: copies its logits to where they are read back
}

// openTop makes what WantTop needs for steps of up to rows rows of logits.
func (r *Runner) openTop(rows int) (err error) {
	words := rows * (2 + 2*TopK)
	r.top = top{
		words: make([]uint32, words), rows: make([]sample.Top, rows), ids: make([]int32, rows*TopK), vals: make([]float32, rows*TopK),
		draws: make([]uint32, 0, 4*rows), row: map[int]gpu.Program{},
	}
	if r.top.back, err = r.dev.NewBuffer("candidates to read", 4*int64(words), gpu.UsageMapRead|gpu.UsageCopyDst); err != nil {
		return memoryError("scratch", 4*int64(words), err)
	}
	return nil
}

// release frees what openTop and ReadLogits made.
func (t *top) release() {
	if t.back != nil {
		t.back.Release()
	}
	for _, p := range t.row {
		p.Release()
	}
}

// StepTop is Step with WantTop: for each row that wants logits it reads back the candidates that its draw asks for,
// 8*TopK + 8 bytes instead of all logits. draws has one element a row; those of rows whose logits will be read as a whole
// do not matter.
func (r *Runner) StepTop(ctx context.Context, p *sched.Plan, draws []sample.Draw) (Result, error) {
	if len(draws) != p.NumLogits {
		panic(fmt.Sprintf("BUG: runner: %d draws for %d rows", len(draws), p.NumLogits))
	}
	r.top.draws = r.top.draws[:0]
	for _, d := range draws {
		r.top.draws = appendDraw(r.top.draws, d)
	}
	if len(draws) > 0 {
		if err := r.dev.WriteBuffer(r.fwd.Draws, 0, gpu.Bytes(r.top.draws)); err != nil {
			return Result{}, err
		}
	}
	return r.Step(ctx, p, WantTop)
}

// appendDraw appends a draw as the kernels read it.
func appendDraw(words []uint32, d sample.Draw) []uint32 {
	race := uint32(0)
	if d.Race {
		race = 1
	}
	return append(words, math.Float32bits(d.InvTemperature), race, uint32(d.Key), uint32(d.Key>>32))
}

// topCommands copy the candidates of rows rows to where they are read back.
func (r *Runner) topCommands(rows int) []gpu.Command {
	return []gpu.Command{
		{CopySrc: r.fwd.TopSums, CopyDst: r.top.back, CopySize: int64(8 * rows)},
		{CopySrc: r.fwd.Top, CopyDst: r.top.back, CopyDstOffset: int64(8 * r.limits.MaxLogits), CopySize: int64(8 * TopK * rows)},
	}
}

// readTop reads back the candidates of rows rows.
func (r *Runner) readTop(ctx context.Context, rows int) ([]sample.Top, error) {
	t, first := &r.top, 2*r.limits.MaxLogits // where candidates begin
	words := t.words[:first+2*TopK*rows]
	if err := r.read(ctx, t.back, gpu.Bytes(words)); err != nil {
		return nil, err
	}
	for m := range rows {
		n := 0
		ids, vals := t.ids[m*TopK:(m+1)*TopK], t.vals[m*TopK:(m+1)*TopK]
		for ; n < TopK; n++ {
			c := words[first+2*(m*TopK+n):]
			if c[1] == kernels.NoID {
				break
			}
			vals[n], ids[n] = math.Float32frombits(c[0]), int32(c[1])
		}
		t.rows[m] = sample.Top{
			IDs: ids[:n], Logits: vals[:n], Max: math.Float32frombits(words[2*m]), Total: float64(math.Float32frombits(words[2*m+1])),
		}
	}
	return t.rows[:rows], nil
}

// ReadLogits reads all logits of a row of the last step, whatever that step read back: for a sampler whom the candidates
// did not suffice. They are valid until the next call or step.
func (r *Runner) ReadLogits(ctx context.Context, row int) ([]float32, error) {
	size := int64(4 * r.cfg.VocabSize)
	p := r.top.row[row]
	if p == nil {
		var err error
		p, err = r.dev.NewProgram(fmt.Sprintf("logits of row %d", row), []gpu.Command{
			{CopySrc: r.fwd.Logits, CopySrcOffset: int64(row) * size, CopyDst: r.logitsBack, CopySize: size},
		})
		if err != nil {
			return nil, err
		}
		r.top.row[row] = p
	}
	if err := r.dev.Submit(p); err != nil {
		return nil, err
	}
	out := r.hostLogits(1)
	return out, r.read(ctx, r.logitsBack, gpu.Bytes(out))
}
