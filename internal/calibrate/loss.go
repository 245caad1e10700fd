package calibrate

import (
	"context"
	"fmt"
	"math"

	"github.com/pagelight/pagelight/internal/runner"
)

// Loss is the mean negative log-likelihood, in nats, of every token of the windows but their first.
func (c *Calibrator) Loss(ctx context.Context) (float64, error) {
	sum, scored := 0.0, 0
	for _, w := range c.windows {
		for at := 0; at < len(w); {
			// Windows are cut where the rows of logits that fit in a step end; keys and values of what came before are there.
			n := min(len(w)-at, c.run.Limits().MaxLogits)
			p := plan(w, n)
			p.Chunks[0].Start, p.Chunks[0].Tokens = at, w[at:at+n]
			p.NumTokens = n
			res, err := c.run.Step(ctx, p, runner.WantLogits)
			if err != nil {
				return 0, fmt.Errorf("calibrate: %w", err)
			}
			for i := 0; i < n && at+i+1 < len(w); i++ {
				sum += logSumExp(res.Row(i)) - float64(res.Row(i)[w[at+i+1]])
				scored++
			}
			at += n
		}
	}
	return sum / float64(max(scored, 1)), nil
}

// logSumExp is log(sum(exp(x))), computed around the largest element.
func logSumExp(x []float32) float64 {
	most := math.Inf(-1)
	for _, v := range x {
		most = max(most, float64(v))
	}
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(float64(v) - most)
	}
	return most + math.Log(sum)
}
