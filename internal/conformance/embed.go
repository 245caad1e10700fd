package conformance

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/ref"
)

// embedCase looks up the first and last id of each part, random ones, and one outside the table, whose row must stay.
func embedCase(b *bench, f quant.Format) error {
	unit := f.Multiple()
	for _, shape := range []struct{ vocab, dim, parts, rows, bucket int }{
		{1, unit, 1, 1, 1},
		{7, 3 * unit, 2, 6, 9},
		{30, 1024, 3, 17, 32},
	} {
		table := b.matrix(f, shape.vocab, shape.dim)
		parts := cut(table, shape.parts)
		tokens := make([]ref.Token, shape.rows)
		for i := range tokens {
			tokens[i].ID = uint32(b.IntN(shape.vocab))
		}
		ids, row := []uint32{uint32(shape.vocab)}, 0
		for _, p := range parts {
			ids = append(ids, uint32(row), uint32(row+p.Rows-1))
			row += p.Rows
		}
		for i := range min(len(ids), shape.rows-1) {
			tokens[i].ID = ids[i]
		}
		before := poisonedFloats(shape.bucket * shape.dim)
		want := poisonedFloats(shape.bucket * shape.dim)
		ref.Embed(&ref.EmbedArgs{Tokens: tokens, Table: table, X: want}, 0, shape.rows)
		op, err := b.set.Embed(kernels.EmbedArgs{
			Rows: shape.bucket, Tokens: b.tokens(tokens, shape.bucket), Table: b.upload(parts...),
			X: b.outputFloats("embed x", rounded, before, want), Step: b.step(shape.rows),
		})
		if err := b.run(op, err, shape.bucket); err != nil {
			return err
		}
	}
	return nil
}

// tokens uploads the tokens of a step, and nonsense for the surplus rows of the bucket.
func (b *bench) tokens(tokens []ref.Token, bucket int) gpu.Buffer {
	list := make([]uint32, 0, 4*bucket)
	for _, t := range tokens {
		list = append(list, t.ID, t.Position, t.Slot, t.Seq)
	}
	for len(list) < 4*bucket {
		list = append(list, 0, 0, 0, 0) // slot 0 belongs to nobody: a store would show
	}
	return b.input(list)
}
