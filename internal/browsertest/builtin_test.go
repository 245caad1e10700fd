package browsertest

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/engine/local"
	"github.com/pagelight/pagelight/internal/builtin"
	"github.com/pagelight/pagelight/internal/gpu"
)

// The built-in model says the same in a tab as natively, on the software adapter and on the engine's own kernels: the
// native engine on the same packed weights is the reference.
func TestBuiltinModel(t *testing.T) {
	const question, maxTokens = "What is a web browser?", 32
	native, err := local.Open(t.Context(), local.Options{
		Model: local.Builtin, Device: "cpu", Engine: engine.Config{KV: engine.KVF32, MaxModelLen: 512},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer native.Close()
	messages := []engine.Message{{Role: "user", Content: question}}
	prompt, err := native.RenderChat(t.Context(), messages, nil)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := native.Tokenize(prompt, true)
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	greedy, err := native.Logits(t.Context(), engine.LogitsRequest{TokenIDs: ids, From: len(ids) - 1, Steps: maxTokens},
		func(_ int, row []float32) error {
			want = append(want, gpu.Bytes(row)...)
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}

	files := site(t)
	addDir(t, files, "models/builtin", builtin.FS())
	base := Serve(t, Mount{"/", files})
	b := Start(t, SwiftShader)
	for _, device := range []string{"gpu", "cpu", "auto"} {
		t.Run(device, func(t *testing.T) {
			c := b.NewClient(t, base)
			started := time.Now()
			ready := c.MustAsk(loadMessage("l", "builtin", "device", device, "max_model_len", 512), "ready", patience)
			var info struct{ Info engine.Info }
			ready.Decode(t, &info)
			t.Logf("ready after %v on %s: %q", time.Since(started), info.Info.Adapter.Name, info.Info.Notes)

			var got struct {
				Results []struct {
					Greedy []int32
					Logits string
				}
			}
			list := []Message{{"name": "q", "input_ids": ids, "from": len(ids) - 1, "steps": maxTokens}}
			c.MustAsk(Message{"type": "logits", "id": "g", "cases": list}, "logits", patience).Decode(t, &got)
			logits, err := base64.StdEncoding.DecodeString(got.Results[0].Logits)
			if err != nil {
				t.Fatal(err)
			}
			vocab := len(want) / maxTokens / 4
			same := 0
			for same < maxTokens && got.Results[0].Greedy[same] == greedy[same] {
				same++
			}
			if same < maxTokens && margin(want, same, vocab) > 0.02 {
				t.Errorf("token %d is %d, want %d", same, got.Results[0].Greedy[same], greedy[same])
			}
			worst := 0.0
			for i := range min(same+1, maxTokens) { // rows computed from the same ids
				ref := floats(want[4*i*vocab : 4*(i+1)*vocab])
				worst = max(worst, compare(t, "logits", logits[4*i*vocab:], ref))
			}
			t.Logf("%d of %d ids are the same, logits differ by %.2g of the row's largest at most", same, maxTokens, worst)

			done := c.MustAsk(Message{"type": "generate", "id": "chat", "endpoint": "chat.completions", "body": Message{
				"messages": []Message{{"role": "user", "content": question}}, "max_tokens": maxTokens, "temperature": 0, "stream": true,
			}}, "done", patience)
			var text strings.Builder
			var answer []int32
			var timing struct {
				FirstToken float64 `json:"first_token_ms"`
				Decode     float64 `json:"decode_ms"`
			}
			for _, raw := range done.Before {
				var k struct {
					Data struct {
						Choices   []struct{ Delta struct{ Content string } }
						Pagelight struct {
							TokenIDs []int32         `json:"token_ids"`
							Timing   json.RawMessage `json:"timing"`
						}
					}
				}
				if err := json.Unmarshal(raw, &k); err != nil {
					t.Fatal(err)
				}
				for _, choice := range k.Data.Choices {
					text.WriteString(choice.Delta.Content)
				}
				answer = append(answer, k.Data.Pagelight.TokenIDs...)
				if k.Data.Pagelight.Timing != nil {
					if err := json.Unmarshal(k.Data.Pagelight.Timing, &timing); err != nil {
						t.Fatal(err)
					}
				}
			}
			if n := min(same, len(answer)); !slices.Equal(answer[:n], greedy[:n]) || n == 0 {
				t.Errorf("the chat's ids are %v, want %v", answer, greedy)
			}
			if text.Len() == 0 {
				t.Error("the chat has no text")
			}
			t.Logf("%d tokens, first after %.0f ms, then %.1f tokens/s: %q", len(answer), timing.FirstToken,
				1e3*float64(len(answer)-1)/timing.Decode, text.String())
		})
	}
}

// margin is how far the best logit of a row is ahead of the second best.
func margin(rows []byte, row, vocab int) float64 {
	best, second := math.Inf(-1), math.Inf(-1)
	for _, v := range floats(rows[4*row*vocab : 4*(row+1)*vocab]) {
		switch x := float64(v); {
		case x > best:
			best, second = x, best
		case x > second:
			second = x
		}
	}
	return best - second
}

func floats(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(uint32(b[4*i]) | uint32(b[4*i+1])<<8 | uint32(b[4*i+2])<<16 | uint32(b[4*i+3])<<24)
	}
	return out
}
