package planner_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/planner"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
)

// fullSize asks for ERNIE-4.5-0.3B as stored in bf16, on a GPU with the limits that WebGPU guarantees.
func fullSize(t *testing.T) planner.Request {
	t.Helper()
	src, err := weights.OpenSynthetic("ernie-4.5-0.3b")
	if err != nil {
		t.Fatal(err)
	}
	asLoaded, q4 := planner.SourceBytes(src)
	info := gpu.Info{Kind: gpu.KindHardware, Name: "test"}
	return planner.Request{
		Config: src.Config(), WeightBytes: asLoaded, Q4Bytes: q4, KV: quant.KVF16, Budget: 8 << 30, Device: "test", Limits: gpu.DefaultLimits,
		Tuning: kernels.TuningFor(info), MaxSeqs: 1, MaxTokens: 512, MaxLogits: 1,
	}
}

func plan(t *testing.T, r planner.Request) planner.Plan {
	t.Helper()
	p, err := planner.Make(r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestFullSize holds the plan of ERNIE-4.5-0.3B against numbers worked out by hand from its shape: 18 layers, 2 KV heads of
// 128, 131,072 positions, 360,748,032 weights of which 37,888 are in vectors.
func TestFullSize(t *testing.T) {
	r := fullSize(t)
	r.MaxModelLen = 131072
	p := plan(t, r)
	if want := int64(360748032-37888)*2 + 37888*4; p.Weights != want {
		t.Errorf("weights take %d bytes, want %d", p.Weights, want)
	}
	if p.TokenBytes != 2*18*2*128*2 || p.KV != 131072*p.TokenBytes || p.NumBlocks != 8192 || p.BlockSize != 16 {
		t.Errorf("the cache has %d blocks of %d bytes, %d a token", p.NumBlocks, p.BlockBytes, p.TokenBytes)
	}
	if rope, logits := int64(131072*128*4), int64(2*103424*4); p.Scratch < rope+logits || p.Scratch > rope+logits+64<<20 {
		t.Errorf("scratch is %d bytes, of which the rotary table has %d and the logits %d", p.Scratch, rope, logits)
	}
	if !p.Fits || p.Sequences != 1 || p.LargestContext != 131072 || len(p.Remedies) != 0 {
		t.Errorf("%+v", p)
	}
	r.KV = quant.KVI8
	if q := plan(t, r); q.TokenBytes != 2*18*2*(128+2) {
		t.Errorf("a token takes %d bytes in int8", q.TokenBytes)
	}
}

func TestWhatDoesNotFit(t *testing.T) {
	r := fullSize(t)
	r.MaxModelLen, r.MaxSeqs, r.MaxLogits = 131072, 16, 16
	r.Budget = 2 << 30
	p := plan(t, r)
	if p.Fits || p.Need <= r.Budget || p.Need != p.Weights+p.Scratch+p.KV || p.Sequences != 0 || p.LargestConcurrency != 0 {
		t.Fatalf("%+v", p)
	}
	for _, m := range p.Remedies {
		checkRemedy(t, r, m)
	}
	if first := p.Remedies[0]; first.MaxModelLen == 0 || first.MaxModelLen != p.LargestContext {
		t.Errorf("the first remedy is %v, the largest context %d", first, p.LargestContext)
	}
	longer := r
	longer.MaxModelLen = p.LargestContext + 1
	if plan(t, longer).Fits {
		t.Errorf("a context of %d fits too", longer.MaxModelLen)
	}

	// Less than the weights in bf16: only 4 bits help, and a larger budget.
	r.Budget, r.MaxModelLen = 400<<20, 0
	p = plan(t, r)
	if p.Fits || p.LargestContext != 0 || p.LongestContext != 131072 || p.NumBlocks != 1 {
		t.Errorf("%+v", p)
	}
	for _, m := range p.Remedies {
		if checkRemedy(t, r, m); m.Quant != "q4" && m.Budget == 0 {
			t.Errorf("remedy %v", m)
		}
	}
	if len(p.Remedies) != 2 {
		t.Errorf("remedies %v", p.Remedies)
	}

	// Less than anything.
	r.Budget = 1
	p = plan(t, r)
	if p.Fits || len(p.Remedies) != 1 || p.Remedies[0].Budget != p.Need {
		t.Errorf("%+v", p)
	}
}

// checkRemedy says whether what a remedy proposes fits, with what it says it needs.
func checkRemedy(t *testing.T, r planner.Request, m planner.Remedy) {
	t.Helper()
	if m.MaxModelLen > 0 {
		r.MaxModelLen = m.MaxModelLen
	}
	if m.MaxSeqs > 0 {
		r.MaxSeqs, r.MaxLogits = m.MaxSeqs, m.MaxSeqs
	}
	if m.KV == "int8" {
		r.KV = quant.KVI8
	}
	if m.Quant == "q4" {
		r.WeightBytes = r.Q4Bytes
	}
	if m.Budget > 0 {
		r.Budget = m.Budget
	}
	if !plan(t, r).Fits {
		t.Errorf("%q does not fit", m)
	}
	r.Budget = m.Need
	if p := plan(t, r); !p.Fits || p.Need != m.Need {
		t.Errorf("%q needs %d bytes, the remedy says %d", m, p.Need, m.Need)
	}
	r.Budget--
	if plan(t, r).Fits {
		t.Errorf("%q fits one byte less", m)
	}
}

func TestDeviceLimits(t *testing.T) {
	r := fullSize(t)
	// Keys of a layer are 512 bytes a token: a binding of 1 MiB shows 2,048 tokens of them, and as many rows of the rotary table.
	r.Limits.MaxStorageBinding = 1 << 20
	r.Limits.MaxBufferSize = 1 << 20
	r.MaxTokens = 16 // whose activations that binding shows
	if p := plan(t, r); p.MaxModelLen != 2048 || p.NumBlocks != 128 || p.LargestContext != 2048 || p.LongestContext != 2048 {
		t.Errorf("%+v", p)
	}
	r.MaxModelLen = 2049
	if _, err := planner.Make(r); err == nil || !strings.Contains(err.Error(), "reach 2048 at most") {
		t.Errorf("a context beyond a binding: %v", err)
	}
	r.MaxModelLen, r.MaxSeqs, r.MaxLogits = 0, 4, 4 // 4 rows of logits are 1,654,784 bytes
	if _, err := planner.Make(r); err == nil || !strings.Contains(err.Error(), "1654784") {
		t.Errorf("logits beyond a binding: %v", err)
	}
	r = fullSize(t)
	r.MaxModelLen = 131073
	if _, err := planner.Make(r); err == nil || !strings.Contains(err.Error(), "made for 131072") {
		t.Errorf("a context beyond the model's: %v", err)
	}
	r.MaxModelLen = 1
	if p := plan(t, r); p.MaxModelLen != 1 || p.NumBlocks != 1 || p.Sequences != 1 {
		t.Errorf("a context of 1: %+v", p)
	}
}

// TestMoreNeedsMore walks through settings from small to large.
func TestMoreNeedsMore(t *testing.T) {
	r := fullSize(t)
	r.Budget = 1 << 50
	least := func(r planner.Request) int64 {
		r.Budget = 0
		return plan(t, r).Need
	}
	last := int64(0)
	for n := 1; n <= 131072; n *= 2 {
		r.MaxModelLen = n
		if need := least(r); need < last {
			t.Errorf("%d tokens need %d bytes, half as many %d", n, need, last)
		} else {
			last = need
		}
	}
	r.MaxModelLen, last = 4096, 0
	for n := 1; n <= planner.MostSeqs; n *= 2 {
		r.MaxSeqs, r.MaxLogits = n, n
		if need := plan(t, r).Need; need <= last {
			t.Errorf("%d sequences need %d bytes, half as many %d", n, need, last)
		} else {
			last = need
		}
	}
	r.MaxModelLen = 0
	before := planner.Plan{}
	for budget := int64(700 << 20); budget <= 16<<30; budget += 501 << 20 {
		r.Budget = budget
		p := plan(t, r)
		if p.Fits && p.Need > budget {
			t.Errorf("a plan for %d bytes needs %d", budget, p.Need)
		}
		if p.NumBlocks < before.NumBlocks || p.MaxModelLen < before.MaxModelLen || p.LargestContext < before.LargestContext {
			t.Errorf("a budget of %d holds %+v, a smaller one %+v", budget, p, before)
		}
		before = p
	}
	int8 := r
	int8.KV = quant.KVI8
	if least(int8) >= least(r) {
		t.Error("int8 does not take less than f16")
	}
}

// TestLargestConcurrency asks for as many sequences as the plan says fit, and for one more.
func TestLargestConcurrency(t *testing.T) {
	r := fullSize(t)
	r.Budget, r.MaxModelLen = 2<<30, 8192
	n := plan(t, r).LargestConcurrency
	if n < 2 || n >= planner.MostSeqs {
		t.Fatalf("%d sequences of 8,192 tokens in 2 GiB", n)
	}
	for more := range 2 {
		r.MaxSeqs, r.MaxLogits = n+more, n+more
		if got := plan(t, r).Sequences; got != n {
			t.Errorf("with %d seats the cache holds %d sequences, want %d", n+more, got, n)
		}
	}
}

func TestRemedyIsWrittenAsFlags(t *testing.T) {
	got := []string{
		planner.Remedy{MaxModelLen: 4096, KV: "int8", Quant: "q4"}.String(), planner.Remedy{MaxSeqs: 1}.String(),
		planner.Remedy{Budget: 3<<20 + 1}.String(),
	}
	if want := []string{"--max-model-len 4096 --kv int8 --quant q4", "--max-num-seqs 1", "--gpu-memory 4M"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
