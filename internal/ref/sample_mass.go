package ref

import "math"

// What SampleMass adds up: the columns of a Mass.
const (
	massFirst   = 12            // arrivals that it looks at
	massColumns = massFirst + 3 // and what min_p keeps at least, and at most, and how many logits are near
	massPart    = 2048          // ids of a part
)

// Mass is sums over some ids of a row of exp((logit - largest) / T).
type Mass [massColumns]float32

// MassArgs are the arguments of SampleMass.
type MassArgs struct {
	Vocab    int         // elements of a row of Logits
	Limit    int         // only ids below this one take part
	Parts    int         // of a row, massPart ids each
	K        int         // candidates of a row
	Top      []Best      // [M, K] in the order of their arrival
	Sums     [][2]uint32 // [M]
	Samplers []Sampler   // [M]
	Draws    []Draw      // [M]: rows that do not race are left out, and those without top_p
	Logits   []float32   // [M, Vocab]
	Mass     []Mass      // [M, Parts], written
}

// SampleMass adds up, for the rows lo..hi-1, what comes before each of the first arrivals.
func SampleMass(a *MassArgs, lo, hi int) {
	for m := lo; m < hi; m++ {
		s := &a.Samplers[m]
		if a.Draws[m].Race == 0 || s.TopP == 1 {
			continue
		}
		largest := float64(math.Float32frombits(a.Sums[m][0]))
		first := a.Top[m*a.K:][:min(a.K, massFirst)]
		for i := range a.Parts {
			var sums [massColumns]float64
			for id := i * massPart; id < min((i+1)*massPart, a.Limit); id++ {
				l := a.Logits[m*a.Vocab+id]
				below := (largest - float64(l)) * float64(s.InvTemperature)
				w := math.Exp(-below)
				for j, than := range first {
					logit := math.Float32frombits(than.Bits)
					if l > logit || l == logit && uint32(id) < than.ID {
						sums[j] += w
					}
					if d := math.Abs(float64(l) - float64(logit)); than.ID != NoID && d != 0 && d*float64(s.InvTemperature) < nearError {
						sums[massFirst+2]++
					}
				}
				sure, may := s.aboveMin(below, 1)
				if sure {
					sums[massFirst] += w
				}
				if may {
					sums[massFirst+1] += w
				}
			}
			for j, v := range sums {
				a.Mass[m*a.Parts+i][j] = float32(v)
			}
		}
	}
}
