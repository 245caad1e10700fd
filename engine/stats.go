package engine

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/runner"
)

// Clock counts what the steps since opening have cost.
type Clock = runner.Clock

// Info describes an open engine; it does not change.
type Info struct {
	Model        string     `json:"model"`
	Architecture string     `json:"architecture"`
	Parameters   int64      `json:"parameters"`
	Active       int64      `json:"active_parameters"` // that take part in computing a token
	Weights      string     `json:"weights"`           // formats of the weights: "q4g32, q8g32"
	WeightBytes  int64      `json:"weight_bytes"`
	ScratchBytes int64      `json:"scratch_bytes"`
	KVBytes      int64      `json:"kv_bytes"` // the whole pool
	KVType       KVType     `json:"kv_type"`
	BlockSize    int        `json:"block_size"` // tokens per block
	NumBlocks    int        `json:"num_blocks"`
	MaxModelLen  int        `json:"max_model_len"`
	MaxAnswers   int        `json:"max_answers"` // that run or wait at once; 0: any number
	MemoryBudget int64      `json:"memory_budget"`
	Adapter      gpu.Info   `json:"adapter"`
	Limits       gpu.Limits `json:"limits"`
	Kernels      []string   `json:"kernels"`
	HasChat      bool       `json:"has_chat_template"`
	Synthetic    bool       `json:"synthetic"` // a speed test, its text means nothing
	Notes        []string   `json:"notes,omitempty"`
}

// Stats is a snapshot of what the engine is doing.
type Stats struct {
	Running            int        `json:"running"`
	Waiting            int        `json:"waiting"`
	BlocksUsed         int        `json:"blocks_used"`
	Sequences          []SeqStats `json:"sequences"`                 // who holds blocks
	PromptTokens       int64      `json:"prompt_tokens"`             // since opening
	GenerationTokens   int64      `json:"generation_tokens"`         // since opening
	Requests           int64      `json:"requests"`                  // finished, since opening
	PrefixQueries      int64      `json:"prefix_cache_queries"`      // tokens of prompts that were looked up in the prefix cache, since opening
	PrefixHits         int64      `json:"prefix_cache_hits"`         // of these, tokens that were found
	Preemptions        int64      `json:"preemptions"`               // since opening
	KVUsage            float64    `json:"kv_usage"`                  // share of the blocks that requests hold, 0 to 1
	PrefillSpeed       float64    `json:"prefill_tokens_per_second"` // of the last step that computed a prompt
	DecodeSpeed        float64    `json:"decode_tokens_per_second"`  // moving average
	DispatchesPerToken int        `json:"dispatches_per_token"`
	SubmitsPerToken    float64    `json:"submits_per_token"` // mean since opening, for each step
	Clock              Clock      `json:"clock"`
}

// SeqStats says which blocks a request holds.
type SeqStats struct {
	ID     string  `json:"id"`
	Tokens int     `json:"tokens"` // in the cache
	Blocks []int32 `json:"blocks"`
}
