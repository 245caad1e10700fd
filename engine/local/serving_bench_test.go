package local

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pagelight/pagelight/engine"
)

// TestSixteenChatsShareTheWork: sixteen chats at once give at least three times the tokens per second of one. The weights
// are read, and a step is paid for, once for all. Only ratios are asserted, of rounds that alternate, so that other work on
// the machine meets both alike.
func TestSixteenChatsShareTheWork(t *testing.T) {
	eng := open(t, "gpu", Options{Engine: engine.Config{MaxModelLen: 256, MaxSeqs: 16, NoPrefixCache: true}})
	const rounds, least = 5, 3.0
	tokensPerSecond(t, eng, 16, 4) // programs are recorded when they are first needed
	tokensPerSecond(t, eng, 1, 4)
	ratios := make([]float64, rounds)
	var one, sixteen [rounds]float64
	for i := range ratios {
		one[i], sixteen[i] = tokensPerSecond(t, eng, 1, 24), tokensPerSecond(t, eng, 16, 24)
		ratios[i] = sixteen[i] / one[i]
	}
	t.Logf("tokens per second: %.0f alone, %.0f with sixteen; ratios %.2f", median(one[:]), median(sixteen[:]), ratios)
	if got := median(ratios); got < least {
		t.Errorf("sixteen chats give %.2f times the tokens per second of one, at least %.1f wanted", got, least)
	}
}

// TestSharedPrefixHalvesTheFirstTokensTime: a prompt of 432 tokens whose first 400 are cached has its first token after at
// most half of the time that it takes cold.
func TestSharedPrefixHalvesTheFirstTokensTime(t *testing.T) {
	eng := open(t, "gpu", Options{Engine: engine.Config{MaxModelLen: 512, MaxSeqs: 16}})
	const rounds, shared, own, most = 5, 400, 32, 0.5
	ratios := make([]float64, rounds)
	var cold, warm [rounds]float64
	for i := range ratios {
		prefix := words(shared, i+1)
		for j, took := range []*float64{&cold[i], &warm[i]} {
			ids := append(slices.Clone(prefix), words(own, 100+10*i+j)...)
			req := engine.Request{TokenIDs: ids, Params: engine.Params{Temperature: zero(), MaxTokens: 1, IgnoreEOS: true}}
			start := time.Now()
			for ev, err := range eng.Generate(t.Context(), req) {
				if err != nil {
					t.Fatal(err)
				}
				if want := j * shared; ev.Usage.CachedTokens != want {
					t.Fatalf("%d tokens were cached, want %d", ev.Usage.CachedTokens, want)
				}
			}
			*took = time.Since(start).Seconds()
		}
		ratios[i] = warm[i] / cold[i]
	}
	t.Logf("first token after %.0f ms cold, %.0f ms cached; ratios %.2f", 1e3*median(cold[:]), 1e3*median(warm[:]), ratios)
	if got := median(ratios); got > most {
		t.Errorf("with a cached prefix the first token takes %.2f times as long as cold, at most %.2f wanted", got, most)
	}
}

// BenchmarkChats generates 64 tokens for each of 1 and 16 chats at once, with the default kernels and the deterministic ones
// and with each kind of cache. Tokens count from the first request to the last answer's end.
func BenchmarkChats(b *testing.B) {
	for _, device := range []string{"cpu", "gpu"} {
		for _, c := range []struct {
			name string
			cfg  engine.Config
		}{
			{"f16", engine.Config{}},
			{"int8", engine.Config{KV: engine.KVI8}},
			{"f16-deterministic", engine.Config{Deterministic: true}},
		} {
			c.cfg.MaxModelLen, c.cfg.MaxSeqs, c.cfg.NoPrefixCache = 512, 16, true
			for _, chats := range []string{"1", "16"} {
				b.Run(device+"/"+c.name+"/"+chats, func(b *testing.B) {
					eng := open(b, device, Options{Engine: c.cfg})
					n := map[string]int{"1": 1, "16": 16}[chats]
					tokensPerSecond(b, eng, n, 4)
					var speeds []float64
					for b.Loop() {
						speeds = append(speeds, tokensPerSecond(b, eng, n, 64))
					}
					b.ReportMetric(median(speeds), "tok/s")
				})
			}
		}
	}
}

// tokensPerSecond answers so many chats at once, each with a prompt of 16 tokens and that many new ones.
func tokensPerSecond(t testing.TB, eng *engine.Engine, chats, tokens int) float64 {
	t.Helper()
	var wg sync.WaitGroup
	start := time.Now()
	for i := range chats {
		wg.Go(func() {
			req := engine.Request{TokenIDs: words(16, i), Params: engine.Params{Temperature: zero(), MaxTokens: tokens, IgnoreEOS: true}}
			for _, err := range eng.Generate(t.Context(), req) {
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return float64(chats*tokens) / time.Since(start).Seconds()
}

// words is n ids that every model has, others for each seed.
func words(n, seed int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(300 + (i*37+seed*1009)%4000)
	}
	return ids
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}
