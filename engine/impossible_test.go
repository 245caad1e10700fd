package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/sched"
)

// TestTheImpossibleDisturbsNobody asks for what can never be, some of which only shows at the second token, beside a
// request that can. Each is a fault of its request, in a field with a name.
func TestTheImpossibleDisturbsNobody(t *testing.T) {
	e := newFakeWith(t, &fakeExec{delay: time.Millisecond}, 64, sched.Config{MaxBatchedTokens: 32, MaxLogits: 4, MaxSeqs: 4, MaxWaiting: 8}, nil)
	ok := make(chan []int32, 1)
	go func() {
		_, ids, _, err := collect(t.Context(), e, greedy([]int32{100}, 80))
		if err != nil {
			t.Error(err)
		}
		ok <- ids
	}()
	var wg sync.WaitGroup
	for name, c := range map[string]struct {
		change func(*Request)
		field  string
	}{
		"more answers than there is room for": {func(r *Request) { r.N = 13 }, "n"},
		"only the end, too early":             {func(r *Request) { r.Params.AllowedTokenIDs, r.Params.MinTokens = []int32{2}, 2 }, "allowed_token_ids"},
		"only a bad word":                     {func(r *Request) { r.Params.AllowedTokenIDs, r.Params.BadWords = []int32{7}, []string{"7"} }, "allowed_token_ids"},
		"only one bad word twice":             {func(r *Request) { r.Params.AllowedTokenIDs, r.Params.BadWords = []int32{7}, []string{"7 7"} }, "allowed_token_ids"},
		"more tokens than at most":            {func(r *Request) { r.Params.MinTokens = 9 }, "min_tokens"},
	} {
		wg.Go(func() {
			req := greedy([]int32{200}, 8)
			c.change(&req)
			var p *ParamError
			if _, _, _, err := collect(t.Context(), e, req); !errors.As(err, &p) || p.Field != c.field {
				t.Errorf("%s: %v, want a fault in %s", name, err, c.field)
			}
		})
	}
	wg.Wait()
	if ids := <-ok; len(ids) != 80 || ids[79] != 180 {
		t.Errorf("the request that can be answered got %v", ids)
	}
	waitForNoBlocks(t, e)
	req := greedy([]int32{100}, 2)
	req.N = 12 // exactly what fits
	if _, ids, _, err := collect(t.Context(), e, req); err != nil || len(ids) != 24 {
		t.Errorf("as many answers as there is room for: %v, %v", ids, err)
	}
}

// TestLogitsIsDoneWhenItReturns: fn belongs to the caller again, also when the caller gave up.
func TestLogitsIsDoneWhenItReturns(t *testing.T) {
	e := newFake(t, &fakeExec{}, 16)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rows := 0 // not guarded: the race detector is the judge
	_, err := e.Logits(ctx, LogitsRequest{TokenIDs: slices.Repeat([]int32{5}, 4)}, func(int, []float32) error {
		cancel()
		time.Sleep(5 * time.Millisecond)
		rows++
		return nil
	})
	at := rows
	time.Sleep(30 * time.Millisecond)
	if rows != at {
		t.Errorf("%d rows came after Logits had returned %v", rows-at, err)
	}
}
