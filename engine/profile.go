package engine

import (
	"context"
	"fmt"

	"github.com/pagelight/pagelight/internal/runner"
	"github.com/pagelight/pagelight/internal/sched"
)

// StepProfile says where the time of a step goes on the device.
type StepProfile = runner.StepProfile

// ProfileRequest describes a step: Seqs sequences, each with Depth tokens in the cache, of each of which Tokens are computed and
// the last one chooses the next.
type ProfileRequest struct{ Seqs, Depth, Tokens int }

// profiler is what Profile needs of the runner.
type profiler interface {
	Profile(ctx context.Context, p *sched.Plan) (runner.StepProfile, error)
}

// Profile times the kernels of a step, once no answer is under way. The tokens are made up, and so is what is in the cache before
// them; no prompt finds it there afterwards.
func (e *Engine) Profile(ctx context.Context, req ProfileRequest) (StepProfile, error) {
	if req.Seqs < 1 || req.Depth < 0 || req.Tokens < 1 {
		return StepProfile{}, fmt.Errorf("engine: profile of %+v: there must be sequences and tokens", req)
	}
	if most := e.maxTokens / req.Tokens; req.Seqs > min(most, e.maxSeqs) {
		return StepProfile{}, fmt.Errorf("engine: profile of %+v: a step here has at most %d sequences and %d tokens", req, e.maxSeqs, e.maxTokens)
	}
	if req.Depth > e.info.MaxModelLen-req.Tokens {
		return StepProfile{}, &ContextLengthError{PromptTokens: req.Depth, MaxTokens: req.Tokens, MaxModelLen: e.info.MaxModelLen}
	}
	var p StepProfile
	var err error
	done := make(chan struct{})
	call := func(l *loop) {
		defer close(done)
		p, err = l.profile(ctx, req)
	}
	select {
	case e.loop.calls <- call:
		<-done // it ends soon after ctx does
		return p, err
	case <-e.loop.stopped:
		return p, ErrClosed
	case <-ctx.Done():
		return p, ctx.Err()
	}
}

// profile runs on the loop's goroutine.
func (l *loop) profile(ctx context.Context, req ProfileRequest) (StepProfile, error) {
	r, ok := l.exec.(profiler)
	if !ok {
		return StepProfile{}, fmt.Errorf("engine: this runner has no profile")
	}
	plan := &sched.Plan{NumTokens: req.Seqs * req.Tokens, NumLogits: req.Seqs}
	for i := range req.Seqs {
		n := req.Depth + req.Tokens
		q := &sched.Sequence{ID: fmt.Sprintf("profile/%d", i), Tokens: make([]int32, n)}
		if q.Table, ok = l.pool.Allocate(nil, l.pool.NumBlocksFor(n)); !ok {
			return StepProfile{}, fmt.Errorf("engine: profile of %+v: the KV cache has %d blocks, too few", req, l.pool.NumBlocks())
		}
		defer l.pool.Free(q.Table)
		plan.Chunks = append(plan.Chunks, sched.Chunk{Seq: q, Tokens: q.Tokens[req.Depth:], Start: req.Depth, Logits: 1})
	}
	return r.Profile(ctx, plan)
}
