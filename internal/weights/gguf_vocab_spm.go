package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// llamaTokenizer is the class of Hugging Face's that stands for a SentencePiece model.
const llamaTokenizer = "LlamaTokenizer"

// sentencePiece writes the vocabulary as a serialized sentencepiece.ModelProto. Field numbers are those of
// sentencepiece_model.proto.
func (v *ggufVocab) sentencePiece(c *ggufTokenizerConfig) ([]byte, error) {
	c.Class, c.AddBOS = llamaTokenizer, true
	prefix, err := v.kv.flag("tokenizer.ggml.add_space_prefix", true)
	if err != nil {
		return nil, err
	}
	c.PrefixSpace = prefix
	scores, err := v.kv.numbers("tokenizer.ggml.scores")
	if err != nil {
		return nil, err
	}
	if scores == nil {
		scores = make([]float32, len(v.tokens))
	}
	if len(scores) < len(v.tokens) {
		return nil, fmt.Errorf("tokenizer.ggml.scores has %d elements for %d tokens", len(scores), len(v.tokens))
	}
	if err := v.findUnknown(); err != nil {
		return nil, err
	}
	size, bytes := 0, false
	for id, text := range v.tokens {
		size += len(text) + 16
		bytes = bytes || v.types[id] == ggufByte
	}
	out := make([]byte, 0, size)
	var piece []byte
	for id, text := range v.tokens {
		if v.types[id] == ggufUserDefined {
			text = v.marked(text)
		}
		piece = protoBytes(piece[:0], 1, text)
		piece = binary.LittleEndian.AppendUint32(protoTag(piece, 2, protoFixed32), math.Float32bits(scores[id]))
		piece = protoUint(piece, 3, uint64(v.types[id]))
		out = protoBytes(out, 1, string(piece))
	}
	trainer := protoUint(nil, 3, 2) // model_type: BPE
	trainer = protoUint(trainer, 35, protoBool(bytes))
	out = protoBytes(out, 2, string(trainer))
	normalizer := protoUint(nil, 3, protoBool(prefix)) // add_dummy_prefix
	normalizer = protoUint(normalizer, 4, 0)           // remove_extra_whitespaces
	normalizer = protoUint(normalizer, 5, 1)           // escape_whitespaces
	return protoBytes(out, 3, string(normalizer)), nil
}

// findUnknown gives the type UNKNOWN to the token that the metadata name, where none has it.
func (v *ggufVocab) findUnknown() error {
	for _, t := range v.types {
		if t == ggufUnknown {
			return nil
		}
	}
	id, err := v.kv.integer("tokenizer.ggml.unknown_token_id", 0)
	if err != nil {
		return err
	}
	if id < 0 || id >= int64(len(v.types)) {
		return fmt.Errorf("no token is of type UNKNOWN, and tokenizer.ggml.unknown_token_id is %d", id)
	}
	v.types[id] = ggufUnknown
	return nil
}

// marked writes the spaces of a user-defined token as SentencePiece does: converters have written them as spaces.
func (v *ggufVocab) marked(text string) string {
	marked := strings.ReplaceAll(text, " ", "\u2581")
	if _, taken := v.ids[marked]; taken {
		return text
	}
	return marked
}

// Wire types of protobuf.
const (
	protoVarint  = 0
	protoLength  = 2
	protoFixed32 = 5
)

func protoTag(b []byte, field, wire uint64) []byte { return binary.AppendUvarint(b, field<<3|wire) }

func protoUint(b []byte, field, value uint64) []byte {
	return binary.AppendUvarint(protoTag(b, field, protoVarint), value)
}

func protoBytes(b []byte, field uint64, value string) []byte {
	return append(binary.AppendUvarint(protoTag(b, field, protoLength), uint64(len(value))), value...)
}

func protoBool(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
