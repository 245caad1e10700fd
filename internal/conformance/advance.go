package conformance

import (
	"math"

	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/ref"
)

// advanceShapes are steps of a burst: what is counted, how long tables are, and for how many steps the same is chosen.
var advanceShapes = []struct {
	rows, bucket, ringRows, maxBlocks, steps int
	counts                                   bool
}{{1, 1, 1, 1, 2, false}, {12, 16, 16, 3, 1, true}, {63, 64, 70, 9, 3, false}, {65, 65, 65, 2, 70, true}, {128, 128, 128, 4, 5, true}}

// advanceVocab is the number of ids that rows may choose.
const advanceVocab = 50

// advanceCase has rows of every kind: running, running out, at a stop, past the stops that count, without a choice, ended, at
// the end of a block, at the end of the table; and the counts of their steps anywhere, so that slots of the ring wrap around.
func advanceCase(b *bench) error {
	for _, s := range advanceShapes {
		a, buffers := advanceRows(b, s.rows, s.bucket, s.ringRows, s.maxBlocks, s.counts)
		a.IDs = make([]uint32, s.bucket)
		for m := range s.rows {
			a.IDs[m] = uint32(b.IntN(advanceVocab))
			switch m % 12 {
			case 3:
				a.IDs[m] = ref.NoID
			case 4:
				a.IDs[m] = ref.Undecided
			case 5:
				a.IDs[m] = a.Stops[m][a.States[m].Stops%8] // often one that does not count
			}
		}
		ids := b.input(a.IDs)
		for range s.steps {
			ref.Advance(a, 0, s.rows)
		}
		args := buffers()
		args.IDs = ids
		op, err := b.set.Advance(args)
		for range s.steps {
			if err := b.run(op, err, s.bucket); err != nil {
				return err
			}
		}
	}
	return nil
}

// argmaxAdvanceCase finds the tokens first: with a NaN in the logits of some rows.
func argmaxAdvanceCase(b *bench) error {
	for _, s := range advanceShapes[:4] {
		a, buffers := advanceRows(b, s.rows, s.bucket, s.ringRows, s.maxBlocks, s.counts)
		const limit = advanceVocab - 3
		logits := b.rowsOf(s.rows, s.bucket, advanceVocab)
		for m := range s.rows {
			switch m % 5 {
			case 1:
				logits[m*advanceVocab+b.IntN(limit)] = float32(math.NaN())
			case 2:
				logits[m*advanceVocab+int(a.Stops[m][0])%limit] = 3
			}
		}
		ids := poisoned(s.bucket)
		ref.Argmax(logits, advanceVocab, limit, ids[:s.rows])
		a.IDs = ids
		for range s.steps {
			ref.Advance(a, 0, s.rows)
		}
		args := buffers()
		op, err := b.set.Argmax(kernels.ArgmaxArgs{
			Rows: s.bucket, Vocab: advanceVocab, Limit: limit, Logits: b.inputFloats(logits), Advance: &args,
			IDs: b.output("argmax_advance ids", words, exact, poisoned(s.bucket), ids), Step: args.Step,
		})
		for range s.steps {
			if err := b.run(op, err, s.bucket); err != nil {
				return err
			}
		}
	}
	return nil
}

// advanceRows makes rows in the states that advanceCase names, without chosen ids. buffers is to be called when ref has run
// over them: it gives the arguments of the op, whose outputs are expected to be as ref left them.
func advanceRows(b *bench, rows, bucket, ringRows, maxBlocks int, counts bool) (a *ref.AdvanceArgs, buffers func() kernels.AdvanceArgs) {
	a = &ref.AdvanceArgs{
		MaxBlocks: maxBlocks, RingRows: ringRows, Vocab: advanceVocab, States: make([]ref.State, bucket), Stops: make([][8]uint32, bucket),
		BlockTables: make([]uint32, bucket*maxBlocks), Tokens: make([]ref.Token, bucket), Ring: poisoned(ref.RingSlots * ringRows),
	}
	for i := range a.BlockTables {
		a.BlockTables[i] = b.Uint32N(1000)
	}
	if counts {
		a.Counts = make([]uint32, bucket*advanceVocab)
		for i := range a.Counts {
			a.Counts[i] = []uint32{0, ref.Seen, ref.Listed, ref.Seen | ref.Listed | 7}[b.IntN(4)]
		}
	}
	records := b.Perm(bucket)
	for m := range bucket {
		a.States[m] = ref.State{Count: b.Uint32N(1 << 20), Left: 2 + b.Uint32N(100), Stops: uint32(m % 9), Flags: uint32(records[m]<<8 | b.IntN(4))}
		for j := range a.Stops[m] {
			a.Stops[m][j] = b.Uint32N(advanceVocab)
		}
		a.Tokens[m] = ref.Token{ID: b.Uint32N(advanceVocab), Position: b.Uint32N(uint32(16*maxBlocks) - 1), Slot: b.Uint32N(1000), Seq: b.Uint32N(uint32(bucket))}
		switch m % 12 {
		case 0:
			a.States[m].Left = 1
		case 1:
			a.States[m].Left = 0
		case 2:
			a.States[m].Count = math.MaxUint32
		case 6:
			a.Tokens[m].Position = uint32(16*b.IntN(maxBlocks) + 15) // the next may be the first without a block
		}
	}
	before := *a
	before.States, before.Tokens = append([]ref.State(nil), a.States...), append([]ref.Token(nil), a.Tokens...)
	before.Ring, before.Counts = append([]uint32(nil), a.Ring...), append([]uint32(nil), a.Counts...)
	return a, func() kernels.AdvanceArgs {
		var stops []uint32
		for _, list := range a.Stops {
			stops = append(stops, list[:]...)
		}
		args := kernels.AdvanceArgs{
			Rows: bucket, MaxBlocks: maxBlocks, RingRows: ringRows, Vocab: advanceVocab, Stops: b.input(stops), BlockTables: b.input(a.BlockTables),
			States: b.output("advance states", words, exact, stateWords(before.States), stateWords(a.States)),
			Tokens: b.output("advance tokens", words, exact, tokenWords(before.Tokens), tokenWords(a.Tokens)),
			Ring:   b.output("advance ring", words, exact, before.Ring, a.Ring), Step: b.step(rows),
		}
		if counts {
			args.Counts = b.output("advance counts", words, exact, before.Counts, a.Counts)
		}
		return args
	}
}

func stateWords(list []ref.State) []uint32 {
	out := make([]uint32, 0, 4*len(list))
	for _, s := range list {
		out = append(out, s.Count, s.Left, s.Stops, s.Flags)
	}
	return out
}

func tokenWords(list []ref.Token) []uint32 {
	out := make([]uint32, 0, 4*len(list))
	for _, t := range list {
		out = append(out, t.ID, t.Position, t.Slot, t.Seq)
	}
	return out
}
