package ref

import "math"

// RouteArgs are the arguments of Route.
type RouteArgs struct {
	Experts, TopK int       // E, and the experts that a token is sent to
	NormMin       float32   // least sum to divide by
	Logits        []float32 // [M, E]
	Bias          []float32 // [E]
	Chosen        []uint32  // [M, TopK]
	Shares        []float32 // [M, TopK]
}

// Route chooses the experts of the rows lo..hi-1 as ERNIE-4.5 MoE does: those with the largest softmax probability plus bias, of
// equal ones the lower. Their shares are their probabilities, without the bias, divided by the sum of these.
func Route(a *RouteArgs, lo, hi int) {
	for m := lo; m < hi; m++ {
		logits := a.Logits[m*a.Experts:][:a.Experts]
		largest := math.Inf(-1)
		for _, l := range logits {
			largest = math.Max(largest, float64(l))
		}
		sum := 0.0
		for _, l := range logits {
			sum += math.Exp(float64(l) - largest)
		}
		prob := func(e int) float64 { return math.Exp(float64(logits[e])-largest) / sum }
		// score is rounded, as that of the other implementations is: what is equal to them is equal here.
		score := func(e int) float32 { return float32(prob(e)) + a.Bias[e] }
		chosen, shares := a.Chosen[m*a.TopK:][:a.TopK], a.Shares[m*a.TopK:][:a.TopK]
		total := 0.0
		for s := range chosen {
			best := -1
			for e := range logits {
				if !contains(chosen[:s], e) && (best < 0 || score(e) > score(best)) {
					best = e
				}
			}
			chosen[s] = uint32(best)
			total += prob(best)
		}
		for s, e := range chosen {
			shares[s] = float32(prob(int(e)) / math.Max(total, float64(a.NormMin)))
		}
	}
}

func contains(chosen []uint32, e int) bool {
	for _, c := range chosen {
		if int(c) == e {
			return true
		}
	}
	return false
}

// NoPair is a tile without an expert, and a place in a tile without a pair.
const NoPair = 0xFFFFFFFF

// GroupExpertsArgs are the arguments of GroupExperts.
type GroupExpertsArgs struct {
	Experts int
	Tile    int      // pairs of a tile
	Tiles   int      // tiles that there is room for
	Chosen  []uint32 // the expert of each pair: [M, TopK]
	Groups  []uint32 // [Tiles + Tiles*Tile]: the expert of each tile, and then its pairs
}

// GroupExperts sorts pairs of a token and an expert by expert, those of one expert by number, and cuts them into tiles.
func GroupExperts(a *GroupExpertsArgs) {
	for i := range a.Groups[:a.Tiles] {
		a.Groups[i] = NoPair
	}
	tile := 0
	for e := range a.Experts {
		used := a.Tile // places of the tile before tile
		for i, c := range a.Chosen {
			if int(c) != e {
				continue
			}
			if used == a.Tile {
				a.Groups[tile], used = uint32(e), 0
				tile++
			}
			a.Groups[a.Tiles+(tile-1)*a.Tile+used] = uint32(i)
			used++
		}
		for ; used < a.Tile; used++ {
			a.Groups[a.Tiles+(tile-1)*a.Tile+used] = NoPair
		}
	}
}

// ExpertsArgs are the arguments of Experts. Pair i is slot i%TopK of row i/TopK.
type ExpertsArgs struct {
	TopK    int
	Chosen  []uint32  // [M, TopK]
	X       []float32 // [M, XStride]; the inputs of slot s begin at s*XSlot
	XStride int
	XSlot   int
	W       Matrix // [experts*N, K], of the experts from Expert0 on
	N       int
	Expert0 int
	Y       []float32 // [M, YStride]; the outputs of slot s begin at YOffset + s*N
	YStride int
	YOffset int
}

// Experts multiplies the inputs of the pairs lo..hi-1 by the matrix of their expert, where W has it.
func Experts(a *ExpertsArgs, lo, hi int) {
	w := make([]float32, a.W.K)
	for i := lo; i < hi; i++ {
		e := int(a.Chosen[i]) - a.Expert0
		if e < 0 || e >= a.W.Rows/a.N {
			continue
		}
		x := a.X[i/a.TopK*a.XStride+i%a.TopK*a.XSlot:][:a.W.K]
		for j := range a.N {
			a.W.Row(e*a.N+j, w)
			sum := 0.0
			for k := range w {
				sum += float64(x[k]) * float64(w[k])
			}
			*a.y(i, j) = float32(sum)
		}
	}
}

// y is output j of pair i.
func (a *ExpertsArgs) y(i, j int) *float32 {
	return &a.Y[i/a.TopK*a.YStride+a.YOffset+i%a.TopK*a.N+j]
}

// CombineExpertsArgs are the arguments of CombineExperts.
type CombineExpertsArgs struct {
	Dim, TopK int
	Shares    []float32 // [M, TopK]
	Parts     []float32 // [M, TopK, Dim]
	Y         []float32 // [M, Dim]
}

// CombineExperts adds to the rows lo..hi-1 of Y what their experts found, by their shares.
func CombineExperts(a *CombineExpertsArgs, lo, hi int) {
	for m := lo; m < hi; m++ {
		y := a.Y[m*a.Dim:][:a.Dim]
		for i := range y {
			sum := 0.0
			for s := range a.TopK {
				sum += float64(a.Shares[m*a.TopK+s]) * float64(a.Parts[(m*a.TopK+s)*a.Dim+i])
			}
			y[i] += float32(sum)
		}
	}
}
