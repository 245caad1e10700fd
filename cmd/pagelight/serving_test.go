package main

import (
	"testing"

	"github.com/pagelight/pagelight/engine"
)

// TestServingFlagsReachTheEngine: each flag has its field.
func TestServingFlagsReachTheEngine(t *testing.T) {
	f := servingFlags{
		MaxNumSeqs: 3, MaxNumBatchedTokens: 40, MaxNumWaiting: 5, SchedulingPolicy: "priority", MaxNumOvertakes: 7,
		LongPrefillTokenThreshold: 9, Deterministic: true, MaxBurst: 4,
	}
	got, err := f.config()
	if err != nil {
		t.Fatal(err)
	}
	want := engine.Config{
		MaxSeqs: 3, MaxBatchedTokens: 40, MaxWaiting: 5, Policy: engine.PolicyPriority, MaxOvertakes: 7,
		LongPrefillThreshold: 9, NoPrefixCache: true, Deterministic: true, MaxBurst: 4,
	}
	if got.MaxSeqs != want.MaxSeqs || got.MaxBatchedTokens != want.MaxBatchedTokens || got.MaxWaiting != want.MaxWaiting || got.Policy != want.Policy ||
		got.MaxOvertakes != want.MaxOvertakes || got.LongPrefillThreshold != want.LongPrefillThreshold || got.NoPrefixCache != want.NoPrefixCache ||
		got.Deterministic != want.Deterministic || got.MaxBurst != want.MaxBurst {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
