package model

import (
	"context"
	"fmt"
	"slices"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
)

// Linear is a linear layer on a device: one matrix, or several that read the same input and lie one below the other.
type Linear struct {
	Names  []string   // of the matrices in the checkpoint, from the top down
	K      int        // inputs
	Pieces []Piece    // they cover all rows, in order
	Bias   gpu.Buffer // [rows] f32, nil without
}

// Piece is neighbouring rows of a Linear whose columns stand in the same order.
type Piece struct {
	Row0  int // the first row, and so the first output
	W     kernels.Weight
	Order gpu.Buffer // [K] u32: the input that each column belongs to, see weights.Source.Order; nil when they stand in order
}

// rows is the number of outputs.
func (l *Linear) rows() int {
	p := l.Pieces[len(l.Pieces)-1]
	return p.Row0 + p.W.Rows
}

// linear loads the named linear layers one below the other. Neighbours whose columns have the same order are one piece.
func (l *loader) linear(ctx context.Context, bias bool, names ...string) (Linear, error) {
	out := Linear{Names: suffixed(names, ".weight")}
	var rows int
	for i := 0; i < len(names); {
		order, err := l.src.Order(ctx, names[i]+".weight")
		if err != nil {
			return out, err
		}
		end := i + 1
		for ; end < len(names); end++ {
			next, err := l.src.Order(ctx, names[end]+".weight")
			if err != nil {
				return out, err
			}
			if !slices.Equal(next, order) {
				break
			}
		}
		p := Piece{Row0: rows}
		if p.W, err = l.matrix(ctx, suffixed(names[i:end], ".weight")...); err != nil {
			return out, err
		}
		if out.K != 0 && p.W.K != out.K {
			return out, fmt.Errorf("model: %s has %d columns, %s has %d", names[i], p.W.K, names[0], out.K)
		}
		if p.Order, err = l.order(names[i], order, p.W.K); err != nil {
			return out, err
		}
		rows += p.W.Rows
		out.K, out.Pieces = p.W.K, append(out.Pieces, p)
		i = end
	}
	var err error
	if bias {
		out.Bias, err = l.vector(ctx, suffixed(names, ".bias")...)
	}
	return out, err
}

func suffixed(names []string, suffix string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = n + suffix
	}
	return out
}

// order puts the order of k columns on the device; nil gives nil.
func (l *loader) order(name string, order []int32, k int) (gpu.Buffer, error) {
	if order == nil {
		return nil, nil
	}
	seen := make([]bool, k)
	for _, from := range order {
		if len(order) != k || from < 0 || int(from) >= k || seen[from] {
			return nil, fmt.Errorf("model: BUG: the order of the columns of %s.weight is no permutation of %d", name, k)
		}
		seen[from] = true
	}
	buf, err := l.buffer(name+" order", int64(4*k))
	if err != nil {
		return nil, err
	}
	l.loaded += int64(4 * k)
	return buf, l.dev.WriteBuffer(buf, 0, gpu.Bytes(order))
}

// inOrder fails for a matrix whose columns stand in an order of their own, where no kernel could follow it.
func (l *loader) inOrder(ctx context.Context, name string) error {
	order, err := l.src.Order(ctx, name)
	if err == nil && order != nil {
		err = fmt.Errorf("model: %s: its columns are stored in another order than its inputs' (GPTQ with desc_act), which is not supported for this tensor; "+
			"a checkpoint made without desc_act is", name)
	}
	return err
}
