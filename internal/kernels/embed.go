package kernels

import "github.com/pagelight/pagelight/internal/gpu"

// EmbedArgs are the arguments of Embed.
type EmbedArgs struct {
	Rows   int         // most rows, M
	Tokens gpu.Buffer  // [M] vec4<u32>: id, position, slot, sequence
	Table  Weight      // [vocab, dim]
	X      gpu.Buffer  // [M, dim] f32, written; rows of ids outside the table are left alone
	Step   gpu.Binding // holds the rows that a step really has
}

type embedParams struct{ K, Row0, Rows, Pad0 uint32 }

const elementWG = 64 // invocations per workgroup of the kernels that have one for each element

// Embed looks tokens up in the embedding table.
func (s *Set) Embed(a EmbedArgs) (Op, error) {
	c := checker{op: "embed"}
	c.positive("Rows", a.Rows)
	c.weight(&a.Table)
	c.buffer("Tokens", a.Tokens, 4*a.Rows)
	c.buffer("X", a.X, a.Rows*a.Table.K)
	if c.err != nil {
		return nil, c.err
	}
	var parts []*dispatch
	for _, part := range a.Table.Parts {
		p, err := s.pipeline("embed", &part.Format, nil)
		if err != nil {
			return nil, err
		}
		params := embedParams{K: uint32(a.Table.K), Row0: uint32(part.Row0), Rows: uint32(part.Rows)}
		group, err := s.bind(p, params, a.Step, a.Tokens, part.Data, part.Scales, a.X)
		if err != nil {
			return nil, err
		}
		parts = append(parts, &dispatch{p, group, s.elementwise(a.Table.K/8, elementWG)})
	}
	format := a.Table.Parts[0].Format
	return &op{
		name: "embed", rows: a.Rows, choose: always(parts...),
		traffic: func(rows int) int64 {
			return int64(rows) * int64(format.RowBytes(a.Table.K)+format.ScaleBytes(a.Table.K)+4*a.Table.K)
		},
	}, nil
}
