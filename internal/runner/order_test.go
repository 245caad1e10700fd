package runner

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
)

// reordered is a source of bf16 matrices whose columns stand in another order than those of the source under it, and that says
// so. q and k of a layer share an order, v has its own; so have gate, up, o and down. What alone lists has them in order.
type reordered struct {
	weights.Source
	cfg weights.Config
}

func (r *reordered) Config() *weights.Config { return &r.cfg }

func (r *reordered) Order(_ context.Context, name string) ([]int32, error) {
	if !strings.Contains(name, "_proj.weight") && name != "lm_head.weight" || strings.Contains(name, "layers.0.mlp.up_proj") {
		return nil, nil
	}
	info, err := r.Info(name)
	if err != nil {
		return nil, err
	}
	h := fnv.New64()
	h.Write([]byte(strings.Replace(name, "k_proj", "q_proj", 1)))
	order := make([]int32, info.K)
	for j, from := range rand.New(rand.NewPCG(h.Sum64(), 0)).Perm(info.K) {
		order[j] = int32(from)
	}
	return order, nil
}

func (r *reordered) Rows(ctx context.Context, name string, lo, hi int) (weights.Rows, error) {
	rows, err := r.Source.Rows(ctx, name, lo, hi)
	if err != nil {
		return rows, err
	}
	order, err := r.Order(ctx, name)
	if err != nil || order == nil {
		return rows, err
	}
	in := rows.Data.Bytes
	out := make([]byte, len(in))
	for at := 0; at < len(in); at += 2 * len(order) {
		for j, from := range order {
			copy(out[at+2*j:][:2], in[at+2*int(from):])
		}
	}
	return weights.Rows{Data: weights.Segment{Bytes: out}}, nil
}

// TestColumnsInAnyOrder runs goldens whose columns are stored in other orders: the logits stay.
func TestColumnsInAnyOrder(t *testing.T) {
	for name, open := range devices(t) {
		for _, model := range []string{"ernie-bias-untied", "qwen2"} {
			t.Run(name+"/"+model, func(t *testing.T) {
				dev := open()
				defer dev.Close()
				dir := filepath.Join(goldens, model)
				src, err := weights.OpenDir(dir)
				if err != nil {
					t.Fatal(err)
				}
				defer src.Close()
				r := &reordered{Source: src, cfg: *src.Config()}
				r.cfg.Reordered = true
				checkSource(t, dev, r, dir, quant.KVF32, 5e-4)
			})
		}
	}
}

// TestOrderOfEmbeddingIsRefused: rows of the embedding are looked up, not multiplied.
func TestOrderOfEmbeddingIsRefused(t *testing.T) {
	src, err := weights.OpenDir(filepath.Join(goldens, "qwen2"))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dev := devices(t)["cpu"]()
	defer dev.Close()
	_, err = Open(context.Background(), dev, embedReordered{src}, Config{
		KV: quant.KVF16, Budget: 1 << 30, MaxModelLen: 64, MaxTokens: 8, MaxLogits: 8, MaxSeqs: 1, Progress: func(string, int64, int64, string) {},
	})
	if err == nil || !strings.Contains(err.Error(), "model.embed_tokens.weight: its columns are stored in another order") {
		t.Errorf("error %v", err)
	}
}

type embedReordered struct{ weights.Source }

func (e embedReordered) Order(_ context.Context, name string) ([]int32, error) {
	if strings.Contains(name, "embed") {
		return make([]int32, e.Config().HiddenSize), nil
	}
	return nil, nil
}
