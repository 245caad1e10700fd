// Package weights reads models: Hugging Face directories, Pagelight bundles, and the synthetic full-size model. All of
// them are a Source: a configuration, named tensors that can be read in pieces, and the tokenizer's files.
//
// It knows no device and no tokenizer.
package weights

import (
	"context"
	"errors"

	"github.com/pagelight/pagelight/internal/quant"
)

// ErrNoTensor says that a model has no tensor of that name.
var ErrNoTensor = errors.New("no such tensor")

// Config is what a model's config.json and generation_config.json say, checked for sense.
type Config struct {
	Architecture string `json:"architecture"` // "ernie4_5", "ernie4_5_moe", "llama", "qwen2" or "qwen3"
	Name         string `json:"name"`         // what to call the model when nobody says: the folder's name, "builtin", ...

	HiddenSize       int     `json:"hidden_size"`
	IntermediateSize int     `json:"intermediate_size"`
	NumLayers        int     `json:"num_hidden_layers"`
	NumHeads         int     `json:"num_attention_heads"`
	NumKVHeads       int     `json:"num_key_value_heads"`
	HeadDim          int     `json:"head_dim"`
	VocabSize        int     `json:"vocab_size"`
	MaxPositions     int     `json:"max_position_embeddings"`
	RMSNormEps       float64 `json:"rms_norm_eps"`
	RopeTheta        float64 `json:"rope_theta"`
	// RopeFrequenciesBF16 says that the rotary frequencies are rounded to bf16, as they are in a model object that was cast
	// as a whole (docs/adr/0011-rotary-frequencies.md). Loaded checkpoints keep them in f32.
	RopeFrequenciesBF16 bool `json:"rope_frequencies_bf16,omitempty"`
	// RopeHalfSplit says that the rotary embedding turns the pairs (i, i+HeadDim/2), as llama and qwen do in their Hugging Face
	// layout; otherwise it turns neighbours (2i, 2i+1), as ERNIE does and as llama does in GGUF files.
	RopeHalfSplit bool         `json:"rope_half_split,omitempty"`
	RopeScaling   *RopeScaling `json:"rope_scaling,omitempty"` // nil: none
	// RopeFactors divide the rotary frequencies, one for each of HeadDim/2 (GGUF's rope_freqs.weight); nil: none.
	RopeFactors []float32 `json:"rope_factors,omitempty"`

	UseBias       bool `json:"use_bias"`            // every linear layer of a block has a bias
	QKVBias       bool `json:"qkv_bias,omitempty"`  // q, k and v have one (qwen2); UseBias is false then
	QKNorm        bool `json:"qk_norm,omitempty"`   // every head of q and k is RMS-normed before the rotary embedding (qwen3)
	TieEmbeddings bool `json:"tie_word_embeddings"` // the LM head is the embedding

	// Reordered says that matrices may have their columns in an order of their own (Source.Order), so that memory is planned for
	// putting their inputs in that order.
	Reordered bool `json:"reordered,omitempty"`

	MoE *MoE `json:"moe,omitempty"` // nil: every block has one dense MLP

	// SyntheticTokenizer says that there is no tokenizer: id n is the piece " n" and the text means nothing.
	SyntheticTokenizer bool `json:"synthetic_tokenizer,omitempty"`

	EOS []int32 `json:"eos"` // every id that ends an answer, from both files
	BOS int32   `json:"bos"` // -1 when there is none

	// Sampling are the defaults of generation_config.json; nil where it says nothing.
	Sampling Sampling `json:"sampling"`
}

// RopeScaling stretches the rotary embedding to longer contexts. The one type is "llama3" (transformers,
// modeling_rope_utils.py, _compute_llama3_parameters).
type RopeScaling struct {
	Type             string  `json:"type"`
	Factor           float64 `json:"factor"`
	LowFreqFactor    float64 `json:"low_freq_factor"`
	HighFreqFactor   float64 `json:"high_freq_factor"`
	OriginalPosition int     `json:"original_max_position_embeddings"`
}

// MoE describes the mixture of experts of ERNIE-4.5 MoE (transformers, models/ernie4_5_moe).
type MoE struct {
	NumExperts       int     `json:"num_experts"`
	TopK             int     `json:"top_k"`              // experts that a token is sent to
	ExpertSize       int     `json:"expert_size"`        // intermediate size of one expert
	SharedExpertSize int     `json:"shared_expert_size"` // of the shared one, 0 without
	NormMin          float64 `json:"norm_min"`           // least sum by which the weights of a token are divided
	FirstLayer       int     `json:"first_layer"`        // layers before it are dense,
	LastLayer        int     `json:"last_layer"`         // and so are those after it,
	Interval         int     `json:"interval"`           // and those whose (index+1) is no multiple of it
}

// The most experts of a layer, and the most that a token is sent to, that the kernels take.
const (
	MaxExperts = 512
	MaxTopK    = 16
)

// Sparse says whether a layer is a mixture of experts.
func (c *Config) Sparse(layer int) bool {
	m := c.MoE
	return m != nil && (layer+1)%m.Interval == 0 && layer >= m.FirstLayer && layer <= m.LastLayer
}

// Sampling holds sampling defaults that a checkpoint may state.
type Sampling struct {
	DoSample          *bool    `json:"do_sample,omitempty"`
	Temperature       *float64 `json:"temperature,omitempty"`
	TopP              *float64 `json:"top_p,omitempty"`
	TopK              *int     `json:"top_k,omitempty"`
	MinP              *float64 `json:"min_p,omitempty"`
	RepetitionPenalty *float64 `json:"repetition_penalty,omitempty"`
	MaxNewTokens      *int     `json:"max_new_tokens,omitempty"`
}

// Info describes a tensor: a matrix [Rows, K], or a vector with Rows 1.
type Info struct {
	Rows, K int
	Format  quant.Format // as stored
}

// Blob is a run of bytes that may live outside the Go heap: a mapped file, or an ArrayBuffer in the browser, which the
// browser's device can upload without copying it through Go.
type Blob interface {
	Size() int64
	ReadAt(p []byte, off int64) (int, error)
}

// Segment is bytes in memory or a range of a blob.
type Segment struct {
	Bytes []byte // when Blob is nil

	Blob         Blob
	Offset, Size int64
}

// Len is the number of bytes.
func (s Segment) Len() int64 {
	if s.Blob != nil {
		return s.Size
	}
	return int64(len(s.Bytes))
}

// Rows is a run of rows of a matrix in the layout of quant.Format: values or codes, and the scales where the format has
// them.
type Rows struct {
	Data, Scales Segment
}

// Source is a model that can be loaded. Tensors have their Hugging Face names (model.layers.0.self_attn.q_proj.weight);
// a source made from another naming translates. Methods are safe for use by one goroutine at a time.
type Source interface {
	Config() *Config
	// Has says whether the tensor exists.
	Has(name string) bool
	// Info describes a tensor; the error wraps ErrNoTensor and names the file when it is missing.
	Info(name string) (Info, error)
	// Rows reads the rows lo to hi-1. The result is valid until the next call. An error names the file and the tensor.
	Rows(ctx context.Context, name string, lo, hi int) (Rows, error)
	// Vector reads a one-dimensional tensor (norm weight, bias) as f32.
	Vector(ctx context.Context, name string) ([]float32, error)
	// Order says which input each column of a stored matrix belongs to: column j multiplies input Order[j]. It is nil where
	// the columns stand in their own order, and otherwise a permutation of 0 to K-1 (GPTQ checkpoints made with desc_act).
	Order(ctx context.Context, name string) ([]int32, error)
	// File reads one of the small files beside the weights: tokenizer.model, tokenizer.json, tokenizer_config.json,
	// chat_template.jinja, added_tokens.json, special_tokens_map.json, MODEL_CARD.md. A missing one gives nil, nil.
	File(ctx context.Context, name string) ([]byte, error)
	// Bytes is the size of all weights as they will lie on the device, for planning and for progress.
	Bytes() int64
	Close() error
}

// naturalOrder is embedded in sources whose matrices have their columns in order.
type naturalOrder struct{}

func (naturalOrder) Order(context.Context, string) ([]int32, error) { return nil, nil }
