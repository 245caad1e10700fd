package weights

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ggufPre is what tokenizer.ggml.pre stands for: the expressions by which text is split, one after the other, before the bytes
// of each piece are merged.
type ggufPre struct {
	splits       []string
	ignoreMerges bool // a piece that is a token is that token
	addBOS       bool // when the file does not say
}

// ggufPreFor finds what a name stands for. The expressions are those of the models' own tokenizer.json; where that differs
// from what llama.cpp makes of it, the pieces are the same.
func ggufPreFor(name string) (ggufPre, bool) {
	switch name {
	case "", "default":
		return ggufPre{splits: []string{`[\p{P}\$\+<=>\^~\|]+`, splitGPT2, `\p{N}+`, `[0-9][0-9][0-9]`}}, true
	case "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2":
		return ggufPre{splits: []string{splitLlama3}, ignoreMerges: true, addBOS: true}, true
	case "dbrx", "smaug-bpe", "glm4", "chatglm-bpe":
		return ggufPre{splits: []string{splitLlama3}}, true
	case "gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4", "gigachat", "a.x-4.0", "mellum":
		return ggufPre{splits: []string{splitGPT2}}, true
	case "smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b":
		return ggufPre{splits: []string{`\p{N}`, splitGPT2}}, true
	case "qwen2", "deepseek-r1-qwen", "kormo", "megrez", "stablelm2", "hunyuan", "grok-2":
		return ggufPre{splits: []string{splitQwen2}}, true
	case "deepseek-llm":
		return ggufPre{splits: []string{`[\r\n]`, `\s?[` + casedLetters() + `]+`, `\s?[` + asciiAndWidePunctuation + `]+`, `\s+$`, splitCJK, `\p{N}+`}}, true
	case "deepseek-coder":
		return ggufPre{splits: []string{`[\r\n]`, `\s?\p{L}+`, `\s?\p{P}+`, splitCJK, `\p{N}`}}, true
	case "deepseek-v3", "hunyuan-dense":
		return ggufPre{splits: []string{`\p{N}{1,3}`, `[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+`, splitDeepSeek3}}, true
	case "tekken":
		return ggufPre{splits: []string{splitWords + `|` + splitWordsUpper + `|\p{N}|` + splitRest}, ignoreMerges: true, addBOS: true}, true
	case "gpt-4o", "llama4":
		return ggufPre{splits: []string{splitWords + contractions + `?|` + splitWordsUpper + contractions + `?|\p{N}{1,3}|` + splitRest}}, true
	}
	return ggufPre{}, false
}

const (
	contractions = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	splitGPT2    = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	splitLlama3  = contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	splitQwen2   = contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	// Words of small letters behind any capitals, and words of capitals, for tekken and gpt-4o.
	splitWords      = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`
	splitWordsUpper = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*`
	splitRest       = ` ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	splitDeepSeek3 = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" +
		`|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	// Of deepseek-llm and deepseek-coder. The second range of splitCJK holds whatever lies between Samaritan and the ideographs.
	splitCJK                = `[\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+`
	asciiAndWidePunctuation = `!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}`
)

// casedLetters lists the letters that deepseek-llm takes for those of words, as the inside of a class. They are those with a
// case in an older Unicode, with holes, so they have to be spelled out.
func casedLetters() string {
	const spans = `41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A 38C 38E-3A1 3A3-3F5
3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45
1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4
1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B
2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A
10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943`
	var sb strings.Builder
	for _, span := range strings.Fields(spans) {
		lo, hi, found := strings.Cut(span, "-")
		sb.WriteString(`\x{` + lo + `}`)
		if found {
			sb.WriteString(`-\x{` + hi + `}`)
		}
	}
	return sb.String()
}

// byteLevel writes the vocabulary as a tokenizer.json.
func (v *ggufVocab) byteLevel(c *ggufTokenizerConfig) ([]byte, error) {
	name, err := v.kv.text("tokenizer.ggml.pre", "")
	if err != nil {
		return nil, err
	}
	pre, ok := ggufPreFor(name)
	if !ok {
		return nil, fmt.Errorf("tokenizer.ggml.pre is %.40q, which is not supported; default, llama-bpe, gpt-2, qwen2, deepseek-llm, smollm and others are", name)
	}
	c.Class, c.AddBOS = "PreTrainedTokenizerFast", pre.addBOS
	merges, err := v.kv.texts("tokenizer.ggml.merges")
	if err != nil {
		return nil, err
	}
	if merges == nil {
		return nil, fmt.Errorf("tokenizer.ggml.merges is missing")
	}
	w := &jsonWriter{}
	w.enc = json.NewEncoder(&w.buf)
	w.enc.SetEscapeHTML(false)

	w.raw(`{"version":"1.0","added_tokens":[`)
	w.list(len(v.tokens), func(id int) bool {
		if t := v.types[id]; t != ggufControl && t != ggufUserDefined && t != ggufUnknown {
			return false
		}
		w.value(map[string]any{"id": id, "content": v.tokens[id], "special": v.types[id] != ggufUserDefined})
		return true
	})
	w.raw(`],"pre_tokenizer":{"type":"Sequence","pretokenizers":[`)
	for _, split := range pre.splits {
		w.value(map[string]any{"type": "Split", "pattern": map[string]string{"Regex": split}, "behavior": "Isolated", "invert": false})
		w.raw(",")
	}
	w.raw(`{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false}]},"decoder":{"type":"ByteLevel"},`)
	w.raw(`"model":{"type":"BPE","ignore_merges":`)
	w.value(pre.ignoreMerges)
	w.raw(`,"vocab":{`)
	w.list(len(v.tokens), func(id int) bool {
		if v.types[id] == ggufUnused {
			return false
		}
		w.value(v.tokens[id])
		w.raw(":")
		w.value(id)
		return true
	})
	w.raw(`},"merges":[`)
	w.list(len(merges), func(i int) bool {
		if !utf8.ValidString(merges[i]) && w.err == nil {
			w.err = fmt.Errorf("tokenizer.ggml.merges: merge %d is not valid UTF-8", i)
		}
		w.value(merges[i])
		return true
	})
	w.raw(`]}}`)
	return w.buf.Bytes(), w.err
}

// jsonWriter writes JSON in pieces; err is the first error.
type jsonWriter struct {
	buf bytes.Buffer
	enc *json.Encoder // to buf
	err error
}

func (w *jsonWriter) raw(s string) { w.buf.WriteString(s) }

func (w *jsonWriter) value(v any) {
	if err := w.enc.Encode(v); err != nil && w.err == nil {
		w.err = err
	}
}

// list puts commas between the items that item writes; it writes none where it gives false.
func (w *jsonWriter) list(n int, item func(i int) bool) {
	first := true
	for i := range n {
		end := w.buf.Len()
		if !first {
			w.raw(",")
		}
		if item(i) {
			first = false
		} else {
			w.buf.Truncate(end)
		}
	}
}
