package quant

import (
	"math"
)

// ccq2Books are the pairs (code scale, code zero) that CCQ2's search chooses from for each row. A byte b stands for the four
// weights that the windows of the code b*scale + zero hold; what matters of a pair is how well its 256 points cover four normal
// weights. These were the best of a random search: with one scale for all, they keep normal weights at 9.5 dB, where a pair taken at
// random keeps 8.7 on average and (128, 0) 1.8. All are integers below 2^12 and 2^16, so every code is exact in f32 (CCQ2Stable).
var ccq2Books = [...][2]float32{
	{209, 5586}, {393, 21043}, {1371, 29070}, {385, 20332}, {1650, 8505}, {1783, 7966}, {2562, 4371}, {2558, 27818},
}

// ccq2Book is what the 256 bytes of a pair stand for.
type ccq2Book [256][4]float64

// newCCQ2Book decodes all bytes.
func newCCQ2Book(scale, zero float32) *ccq2Book {
	f := Format{CCQ2, CCQGroup}
	var book ccq2Book
	var values [4]int32
	for b := range book {
		for i, v := range f.CCQWeights(CCQ2Code(byte(b), scale, zero), values[:]) {
			book[b][i] = float64(v)
		}
	}
	return &book
}

// ccq2Coder makes CCQ2.
type ccq2Coder struct {
	books  []*ccq2Book
	scales [][]float64 // [books][groups] as ccqCoder's
	curves [][]float64
	values []float64 // [K] as ccqCoder's
}

func newCCQ2(k int) *ccq2Coder {
	c := &ccq2Coder{values: make([]float64, k)}
	for _, b := range ccq2Books {
		c.books = append(c.books, newCCQ2Book(b[0], b[1]))
		c.scales = append(c.scales, make([]float64, k/CCQGroup))
		c.curves = append(c.curves, make([]float64, k/CCQGroup))
	}
	return c
}

func (c *ccq2Coder) row(r *searchRow, data, scales []uint32) error {
	clear(data)
	clear(scales)
	clear(c.values)
	f := Format{CCQ2, CCQGroup}
	b, most := c.choose(r)
	pair := ccq2Books[b]
	SetCCQ2Line(scales, pair[0], pair[1])
	if most == 0 {
		return nil
	}
	super := superScale(c.scales[b], c.curves[b], most, 15)
	for g, wanted := range c.scales[b] {
		lo := g * CCQGroup
		target, weight := r.target[lo:lo+CCQGroup], r.weight[lo:lo+CCQGroup]
		if r.metric != nil && g > 0 {
			wanted, _ = c.fit(c.books[b], target, weight, wanted)
		}
		local, least := 1, math.Inf(1)
		first := int(math.Floor(wanted / super))
		for l := max(1, min(first, 15)); l <= min(max(first, 0)+1, 15); l++ {
			if err, _, _ := c.cost(c.books[b], target, weight, float64(l)*super); err < least {
				local, least = l, err
			}
		}
		f.SetCCQLocal(data, scales, g, uint32(local))
		scale := float32(local) * float32(super)
		for at := range CCQGroup / 4 {
			i := lo + 4*at
			code := c.nearest(c.books[b], r, i, float64(scale))
			f.SetCCQCode(data, i/4, uint32(code))
			for j, v := range c.books[b][code] {
				c.values[i+j] = v * float64(local)
				r.store(i+j, float64(float32(v)*scale))
			}
		}
	}
	f.SetCCQSuper(scales, float32(r.bestScale(c.values, super)))
	return nil
}

// choose picks the book that loses the least on a few groups of the row, and finds the best scale of each group with it.
func (c *ccq2Coder) choose(r *searchRow) (book int, most float64) {
	groups := len(r.w) / CCQGroup
	least := math.Inf(1)
	for b := range c.books {
		sum := 0.0
		for g := 0; g < groups; g += (groups + 3) / 4 {
			lo := g * CCQGroup
			target, weight := r.target[lo:lo+CCQGroup], r.weight[lo:lo+CCQGroup]
			s := weightedRMS(target, weight) * ccq2Spread
			err, cross, square := c.cost(c.books[b], target, weight, s)
			if square > 0 {
				err -= (cross - s*square) * (cross - s*square) / square
			}
			sum += err
		}
		if sum < least {
			book, least = b, sum
		}
	}
	for g := range groups {
		lo := g * CCQGroup
		target, weight := r.target[lo:lo+CCQGroup], r.weight[lo:lo+CCQGroup]
		c.scales[book][g], c.curves[book][g] = c.fit(c.books[book], target, weight, weightedRMS(target, weight)*ccq2Spread)
		most = max(most, c.scales[book][g])
	}
	return book, most
}

// ccq2Spread is about the best scale for weights of mean square 1: the values of a book spread evenly from -32 to 31.
const ccq2Spread = 1.1 * 1.7320508 / 32

// fit improves the scale of a group.
func (c *ccq2Coder) fit(book *ccq2Book, target, weight []float64, start float64) (scale, curve float64) {
	if !(start > 0) {
		return 0, 0
	}
	least := math.Inf(1)
	try := func(s float64) {
		err, cross, square := c.cost(book, target, weight, s)
		if square > 0 && cross > 0 {
			err -= (cross - s*square) * (cross - s*square) / square
			if err < least {
				least, scale, curve = err, cross/square, square
			}
		}
	}
	for _, factor := range [...]float64{0.86, 1, 1.16} {
		try(start * factor)
	}
	try(scale)
	return scale, curve
}

// cost is the error of the best bytes under a scale, and the sums of weight*target*value and weight*value².
func (c *ccq2Coder) cost(book *ccq2Book, target, weight []float64, scale float64) (err, cross, square float64) {
	for i := 0; i < len(target); i += 4 {
		least, code := nearest4(book, target[i:i+4], weight[i:i+4], scale)
		err += least
		for j, v := range book[code] {
			cross += weight[i+j] * target[i+j] * v
			square += weight[i+j] * v * v
		}
	}
	return err, cross, square
}

// nearest4 is the byte whose four values are nearest to the targets.
func nearest4(book *ccq2Book, target, weight []float64, scale float64) (least float64, code int) {
	t0, t1, t2, t3 := target[0], target[1], target[2], target[3]
	m0, m1, m2, m3 := weight[0], weight[1], weight[2], weight[3]
	least = math.Inf(1)
	for b := range book {
		v := &book[b]
		d0, d1, d2, d3 := t0-v[0]*scale, t1-v[1]*scale, t2-v[2]*scale, t3-v[3]*scale
		if sum := m0*d0*d0 + m1*d1*d1 + m2*d2*d2 + m3*d3*d3; sum < least {
			least, code = sum, b
		}
	}
	return least, code
}

// nearest is the byte to store for the four weights from i on. With feedback the error of each moves the targets of the others.
func (c *ccq2Coder) nearest(book *ccq2Book, r *searchRow, i int, scale float64) int {
	if r.metric == nil {
		_, code := nearest4(book, r.target[i:i+4], r.weight[i:i+4], scale)
		return code
	}
	k, u, d := r.metric.k, r.metric.u, r.metric.d[i:i+4]
	t, w := r.target[i:i+4], r.w[i:i+4]
	u01, u02, u03 := u[i*k+i+1], u[i*k+i+2], u[i*k+i+3]
	u12, u13, u23 := u[(i+1)*k+i+2], u[(i+1)*k+i+3], u[(i+2)*k+i+3]
	least, code := math.Inf(1), 0
	for b := range book {
		v := &book[b]
		q0, q1, q2, q3 := v[0]*scale, v[1]*scale, v[2]*scale, v[3]*scale
		e0, e1, e2 := w[0]-q0, w[1]-q1, w[2]-q2
		d0, d1 := t[0]-q0, t[1]+e0*u01-q1
		d2, d3 := t[2]+e0*u02+e1*u12-q2, t[3]+e0*u03+e1*u13+e2*u23-q3
		if sum := d[0]*d0*d0 + d[1]*d1*d1 + d[2]*d2*d2 + d[3]*d3*d3; sum < least {
			least, code = sum, b
		}
	}
	return code
}
