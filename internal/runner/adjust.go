package runner

import (
	"context"
	"math"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/model"
	"github.com/pagelight/pagelight/internal/sample"
	"github.com/pagelight/pagelight/internal/sched"
)

const _ = uint(model.MaxEntries - sample.DeviceBiases) // as many as a sampler may want

// mostTold bounds the tokens that a record is told of one by one, each in a write of its own; beyond them it is written anew.
const mostTold = 32

// adjusts is what changes the logits of rows of bursts. Each sequence whose row wants that has a record on the device, which stays where
// it is as long as the sequence is in every series: the counts of its tokens are as large as a row of logits.
type adjusts struct {
	made    *model.Adjusted // nil: not needed so far
	err     error           // why it cannot be made
	records []adjusted
	of      map[*sched.Sequence]int
	rows    []int    // of the series, by row: the record, or noRecord
	flags   []uint32 // of the series, by row: as kernels.AdvanceArgs.States has them
	words   []uint32 // scratch
}

// adjusted is a record: what the device knows of a sequence.
type adjusted struct {
	seq        *sched.Sequence // nil: free
	adjustment sample.Adjustment
	counted    int  // tokens of the answer that its counts know
	kept       bool // the sequence is in the series that begins
}

// OpenAdjust makes what rows with BurstRow.Adjust need: memory of 4 bytes for each token of the vocabulary and each sequence, which was
// planned for, and kernels. The first call does so; an error is that of the device, and the next call returns it too.
func (r *Runner) OpenAdjust(ctx context.Context) error {
	a := &r.adjusts
	if a.made != nil || a.err != nil {
		return a.err
	}
	made, err := model.NewAdjusted(r.dev, r.set, r.cfg, r.fwd, r.shape)
	if err == nil {
		err = r.set.Compile(ctx, nil)
	}
	if err != nil {
		a.err = memoryError("counts of tokens", model.AdjustedBytes(r.cfg, r.shape), err)
		return a.err
	}
	n := r.limits.MaxSeqs
	*a = adjusts{
		made: made, records: make([]adjusted, n), of: make(map[*sched.Sequence]int, n), rows: make([]int, 0, n), flags: make([]uint32, 0, n),
		words: make([]uint32, max(r.cfg.VocabSize, 2*model.MaxEntries, kernels.PenaltyBytes/4)),
	}
	return nil
}

// Where there is no record.
const (
	noRecord   = -1 // and none is needed
	unassigned = -2
)

// begin brings the device's records up to date for a series, and reports whether a row has one.
func (a *adjusts) begin(r *Runner, p *sched.Plan, rows []BurstRow) (any bool, err error) {
	a.rows, a.flags = a.rows[:0], a.flags[:0]
	for i := range rows {
		n := noRecord
		if rows[i].Adjust != nil {
			if a.made == nil {
				panic("BUG: runner: a row whose logits are to be changed, before OpenAdjust")
			}
			any, n = true, unassigned
			if at, ok := a.of[p.Chunks[i].Seq]; ok {
				n, a.records[at].kept = at, true
			}
		}
		a.rows, a.flags = append(a.rows, n), append(a.flags, 0)
	}
	if a.made == nil {
		return false, nil
	}
	a.free()
	for i, at := range a.rows {
		if at == noRecord {
			continue
		}
		if a.rows[i], err = a.update(r, at, p.Chunks[i].Seq, rows[i].Adjust, p.Chunks[i].Start); err != nil {
			a.forget()
			return false, err
		}
		a.flags[i] = uint32(a.rows[i])<<kernels.FlagRecord | kernels.FlagPenalized
		if a.records[a.rows[i]].adjustment.Counting {
			a.flags[i] |= kernels.FlagCounted
		}
	}
	return any, nil
}

// free frees the records of sequences that are not in the series.
func (a *adjusts) free() {
	for at := range a.records {
		if q := &a.records[at]; q.kept {
			q.kept = false
		} else if q.seq != nil {
			delete(a.of, q.seq)
			*q = adjusted{}
		}
	}
}

// forget frees all records: nobody knows any more what the device has counted.
func (a *adjusts) forget() {
	clear(a.of)
	clear(a.records)
}

// update brings a sequence's record up to date, or writes it where one is free, if it is unassigned. position is that of the token
// from whose logits the next one is chosen. It returns where the record is.
func (a *adjusts) update(r *Runner, at int, seq *sched.Sequence, s *sample.Sampler, position int) (int, error) {
	if at == unassigned {
		for at = 0; a.records[at].seq != nil; {
			at++
		}
		adjustment, ok := s.Adjust()
		if !ok {
			panic("BUG: runner: a row whose logits no device can change")
		}
		a.records[at], a.of[seq] = adjusted{seq: seq, adjustment: adjustment}, at
		if err := a.writeEntries(r, at, position); err != nil {
			return at, err
		}
		return at, a.writeCounts(r, at, s)
	}
	q := &a.records[at]
	if !q.adjustment.Counting {
		return at, nil
	}
	untold := s.Accepted() - q.counted
	if untold < 0 || untold > mostTold {
		return at, a.writeCounts(r, at, s)
	}
	for _, id := range seq.Tokens[len(seq.Tokens)-untold:] {
		a.words[0] = s.Count(&q.adjustment, id)
		if err := r.dev.WriteBuffer(a.made.Counts, 4*(int64(at)*int64(r.cfg.VocabSize)+int64(id)), gpu.Bytes(a.words[:1])); err != nil {
			return at, err
		}
	}
	q.counted = s.Accepted()
	return at, nil
}

// writeEntries writes all of a record but its counts.
func (a *adjusts) writeEntries(r *Runner, at, position int) error {
	d := &a.records[at].adjustment
	words := append(a.words[:0], math.Float32bits(d.Repetition), math.Float32bits(d.Frequency), math.Float32bits(d.Presence), uint32(len(d.Biases)),
		uint32(position+d.Bans), 0, 0, 0)
	if err := r.dev.WriteBuffer(a.made.Penalties, int64(at)*kernels.PenaltyBytes, gpu.Bytes(words)); err != nil || len(d.Biases) == 0 {
		return err
	}
	words = a.words[:0]
	for _, b := range d.Biases {
		id := uint32(b.ID)
		if b.Biased {
			id |= kernels.EntryBiased
		}
		if b.Banned {
			id |= kernels.EntryBanned
		}
		words = append(words, id, math.Float32bits(b.Bias))
	}
	return r.dev.WriteBuffer(a.made.Listed, 8*int64(at)*model.MaxEntries, gpu.Bytes(words))
}

// writeCounts writes what a sampler has seen so far.
func (a *adjusts) writeCounts(r *Runner, at int, s *sample.Sampler) error {
	q, words := &a.records[at], a.words[:r.cfg.VocabSize]
	s.Counts(&q.adjustment, words)
	q.counted = s.Accepted()
	return r.dev.WriteBuffer(a.made.Counts, 4*int64(at)*int64(r.cfg.VocabSize), gpu.Bytes(words))
}

// took notes what the device has counted in a burst.
func (a *adjusts) took(b Burst) {
	for row, at := range a.rows {
		if at == noRecord {
			continue
		}
		for step := range b.Steps {
			if b.ids[step*b.width+row] < kernels.NoToken {
				a.records[at].counted++
			}
		}
	}
}
