package browsertest

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"os"
	"testing"
	"time"

	"github.com/pagelight/pagelight/engine"
)

// The model of full size in a tab, in 4 bits, which hold it without loss, against transformers: the same ids as long as
// the margins are wider than the order of sums explains.
func TestFullSizeModel(t *testing.T) {
	if os.Getenv("PAGELIGHT_FULL") == "" {
		t.Skip("SKIPPED: runs with make test-full")
	}
	const long = 20 * time.Minute
	var want struct {
		Cases []struct {
			Name     string    `json:"name"`
			InputIDs []int32   `json:"input_ids"`
			Greedy   []int32   `json:"greedy"`
			Margins  []float64 `json:"margins"`
			First    struct {
				IDs    []int     `json:"ids"`
				Logits []float64 `json:"logits"`
				AbsMax float64   `json:"absmax"`
			} `json:"first"`
		} `json:"cases"`
	}
	data, err := os.ReadFile("../../engine/local/testdata/full-shape.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	b := Start(t, SwiftShader)
	c := b.NewClient(t, Serve(t, Mount{"/", site(t)}))
	started := time.Now()
	c.Post(Message{"type": "load", "id": "l", "model": Message{"kind": "synthetic", "name": "ernie-4.5-0.3b"}, "options": Message{
		"device": "auto", "kv": "f32", "quant": "q4", "max_model_len": 512, "gpu_memory": 1 << 30,
	}})
	// The page gives a worker up that is silent for long, so pings have to get through while it loads.
	slowest := time.Duration(0)
	for i := 0; c.Count("l") == 0 || time.Since(started) < 20*time.Second; i++ {
		id := "ping" + string(rune('a'+i%26)) + string(rune('a'+i/26))
		at := time.Now()
		c.MustAsk(Message{"type": "ping", "id": id}, "pong", long)
		slowest = max(slowest, time.Since(at))
		time.Sleep(200 * time.Millisecond)
	}
	var ready struct{ Info engine.Info }
	c.Wait("l", long).Decode(t, &ready)
	t.Logf("ready after %v on %s, slowest ping %v, %d MiB of weights", time.Since(started), ready.Info.Adapter.Name, slowest, ready.Info.WeightBytes>>20)
	if slowest > 5*time.Second {
		t.Errorf("a ping took %v while the model was loaded", slowest)
	}
	for _, w := range want.Cases[:2] {
		started := time.Now()
		steps := min(8, len(w.Greedy))
		var got struct {
			Results []struct {
				Greedy []int32
				Logits string
			}
		}
		list := []Message{{"name": w.Name, "input_ids": w.InputIDs, "from": len(w.InputIDs) - 1, "steps": steps}}
		c.MustAsk(Message{"type": "logits", "id": w.Name, "cases": list}, "logits", long).Decode(t, &got)
		t.Logf("%s: %d ids of prompt and %d of answer in %v", w.Name, len(w.InputIDs), steps, time.Since(started))
		raw, err := base64.StdEncoding.DecodeString(got.Results[0].Logits)
		if err != nil {
			t.Fatal(err)
		}
		logits := floats(raw)
		for i, id := range w.First.IDs {
			if d := math.Abs(float64(logits[id]) - w.First.Logits[i]); d > 1e-4*w.First.AbsMax {
				t.Errorf("%s: the logit of %d is off by %g", w.Name, id, d)
			}
		}
		for i, id := range got.Results[0].Greedy {
			if w.Margins[i] < 0.02 {
				break
			}
			if id != w.Greedy[i] {
				t.Errorf("%s: token %d is %d, want %d", w.Name, i, id, w.Greedy[i])
				break
			}
		}
	}
}
