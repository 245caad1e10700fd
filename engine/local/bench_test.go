package local

import (
	"os"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/engine"
)

// The benchmarks report tokens per second. The built-in model runs always; PAGELIGHT_BENCH_MODELS adds others
// ("synthetic:ernie-4.5-0.3b/q4 synthetic:ernie-4.5-0.3b/none").
func benchModels() []string {
	return append([]string{"builtin/none"}, strings.Fields(os.Getenv("PAGELIGHT_BENCH_MODELS"))...)
}

func eachModel(b *testing.B, run func(b *testing.B, eng *engine.Engine)) {
	for _, name := range benchModels() {
		for _, device := range []string{"cpu", "gpu"} {
			b.Run(name+"/"+device, func(b *testing.B) {
				cut := strings.LastIndexByte(name, '/')
				run(b, open(b, device, Options{Model: name[:cut], Quant: name[cut+1:], Engine: engine.Config{MaxModelLen: 2048, NoPrefixCache: true}}))
			})
		}
	}
}

// BenchmarkDecode generates 64 tokens greedily after a prompt of 16; only the tokens after the first count.
func BenchmarkDecode(b *testing.B) {
	eachModel(b, func(b *testing.B, eng *engine.Engine) {
		req := engine.Request{TokenIDs: prompt(16), Params: engine.Params{Temperature: zero(), MaxTokens: 64, IgnoreEOS: true}}
		var seconds float64
		tokens := 0
		for b.Loop() {
			for ev, err := range eng.Generate(b.Context(), req) {
				if err != nil {
					b.Fatal(err)
				}
				if ev.FinishReason != "" {
					seconds += ev.Timing.Decode.Seconds()
					tokens += ev.Usage.CompletionTokens - 1
				}
			}
		}
		b.ReportMetric(float64(tokens)/seconds, "tok/s")
		b.ReportMetric(float64(eng.Stats().DispatchesPerToken), "dispatches/tok")
	})
}

// BenchmarkPrefill computes prompts of 512 tokens and one token after each.
func BenchmarkPrefill(b *testing.B) {
	eachModel(b, func(b *testing.B, eng *engine.Engine) {
		req := engine.Request{TokenIDs: prompt(512), Params: engine.Params{Temperature: zero(), MaxTokens: 1, IgnoreEOS: true}}
		var seconds float64
		tokens := 0
		for b.Loop() {
			for ev, err := range eng.Generate(b.Context(), req) {
				if err != nil {
					b.Fatal(err)
				}
				if ev.FinishReason != "" {
					seconds += ev.Timing.FirstToken.Seconds()
					tokens += ev.Usage.PromptTokens
				}
			}
		}
		b.ReportMetric(float64(tokens)/seconds, "tok/s")
	})
}

// prompt is n ids that every model has.
func prompt(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(300 + i*37%4000)
	}
	return ids
}
