package engine

import (
	"context"
	"fmt"
	"math"

	"github.com/pagelight/pagelight/internal/sample"
	"github.com/pagelight/pagelight/internal/sched"
)

// LogitsRequest asks for raw logits instead of text.
type LogitsRequest struct {
	TokenIDs []int32
	From     int // the first position whose logits are wanted
	Steps    int // how many tokens to continue greedily; end-of-answer ids do not end it
	// Chunk is the most tokens computed in one step, 0 for as many as a step may have. With 1 a prompt is computed as answers are, by
	// other kernels than those of prompts.
	Chunk int
}

// Logits computes logits [vocab] position by position: fn gets each row from From on, those of the continuation
// included, and must not keep it. The position of a row is that of the token it was computed from. It returns the
// greedy continuation, Steps ids long; its last id is chosen but not computed.
func (e *Engine) Logits(ctx context.Context, req LogitsRequest, fn func(pos int, row []float32) error) ([]int32, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if req.Chunk < 0 {
		return nil, &ParamError{"chunk", fmt.Sprintf("must be at least 0, got %d", req.Chunk)}
	}
	ids, err := e.promptIDs(ctx, &Request{TokenIDs: req.TokenIDs})
	if err != nil {
		return nil, err
	}
	if len(ids)+max(req.Steps, 1) > e.info.MaxModelLen+1 {
		return nil, &ContextLengthError{PromptTokens: len(ids), MaxTokens: req.Steps, MaxModelLen: e.info.MaxModelLen}
	}
	p := sample.Default()
	p.Temperature = 0
	j := &job{
		group:  &group{ctx: ctx, id: "logits", out: newQueue(), n: 1, left: 1, promptTop: -1},
		prompt: len(ids), maxNew: req.Steps, promptOnly: req.Steps == 0, top: -1, text: e.Text, onLogits: fn,
		sampler: sample.New(p, e.config.VocabSize),
		seq: &sched.Sequence{
			ID: "logits", Tokens: ids, MaxTokens: len(ids) + max(0, req.Steps-1), LogitsFrom: max(0, min(req.From, len(ids)-1)), MaxChunk: req.Chunk,
		},
	}
	if err := e.loop.submit([]*job{j}); err != nil {
		return nil, err
	}
	var greedy []int32
	for {
		// Not until ctx ends but until the engine has dropped the request: fn is not called any more when Logits returns.
		events, end, err := j.out.take(context.WithoutCancel(ctx))
		for _, ev := range events {
			greedy = append(greedy, ev.TokenIDs...)
		}
		if end {
			return greedy, err
		}
	}
}

// NLL is the sum of the negative natural-log probabilities of ids[1:], each given those before it, run alone from
// position 0.
func (e *Engine) NLL(ctx context.Context, ids []int32) (float64, error) {
	sum := 0.0
	_, err := e.Logits(ctx, LogitsRequest{TokenIDs: ids}, func(pos int, row []float32) error {
		if pos+1 < len(ids) {
			sum += NegativeLogLikelihood(row, ids[pos+1])
		}
		return nil
	})
	return sum, err
}

// NegativeLogLikelihood is that of a token, in nats, under the softmax of a row of logits.
func NegativeLogLikelihood(row []float32, id int32) float64 { return logSumExp(row) - float64(row[id]) }

// logSumExp is log(sum(exp(x))), computed around the largest element.
func logSumExp(x []float32) float64 {
	most := float64(math.Inf(-1))
	for _, v := range x {
		most = max(most, float64(v))
	}
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(float64(v) - most)
	}
	return most + math.Log(sum)
}
