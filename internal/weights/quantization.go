package weights

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// scheme is how a tool stores quantized matrices.
type scheme interface {
	// name is what the tool's format is called.
	name() string
	// quantizes says whether a tensor, by the last part of its name, makes its module a quantized one. The tensors decide
	// what is quantized, and not the lists of modules that were left out: those then have plain weights.
	quantizes(suffix string, t dirTensor) bool
	// matrix describes the quantized weight of a module.
	matrix(p *parts) (*packedMatrix, error)
}

// schemes are the values of quant_method that are supported.
var schemes = map[string]func(raw []byte) (scheme, error){
	"awq":                newAWQ,
	"gptq":               newGPTQ,
	"compressed-tensors": newCompressed,
	"fp8":                newFP8,
}

// quantizationFiles are where tools wrote what now stands in config.json, and the method when the file does not name it.
var quantizationFiles = []struct{ file, method string }{
	{"quantize_config.json", "gptq"},
	{"quant_config.json", "awq"},
}

// quantization reads what a checkpoint says about how it was quantized; nil when it says nothing.
func (d *dirSource) quantization(config []byte) (scheme, error) {
	var c struct {
		Quantization json.RawMessage `json:"quantization_config"`
		Compression  json.RawMessage `json:"compression_config"` // as compressed-tensors called it at first
	}
	if err := decodeJSON(config, &c); err != nil {
		return nil, fmt.Errorf("weights: %s/config.json: %w", d.at, err)
	}
	for _, part := range []struct {
		field, method string
		raw           json.RawMessage
	}{{"quantization_config", "", c.Quantization}, {"compression_config", "compressed-tensors", c.Compression}} {
		if isNull(part.raw) {
			continue
		}
		s, err := newScheme(part.raw, part.method)
		if err != nil {
			return nil, fmt.Errorf("weights: %s/config.json: %s: %w", d.at, part.field, err)
		}
		return s, nil
	}
	for _, f := range quantizationFiles {
		raw, err := d.readSmall(f.file, maxConfigBytes)
		if err != nil {
			return nil, err
		}
		if raw == nil {
			continue
		}
		s, err := newScheme(raw, f.method)
		if err != nil {
			return nil, fmt.Errorf("weights: %s/%s: %w", d.at, f.file, err)
		}
		return s, nil
	}
	return nil, nil
}

func newScheme(raw []byte, method string) (scheme, error) {
	var head struct {
		Method string `json:"quant_method"`
	}
	if err := decodeJSON(raw, &head); err != nil {
		return nil, err
	}
	if head.Method != "" {
		method = strings.ToLower(head.Method)
	}
	known := strings.Join(slices.Sorted(maps.Keys(schemes)), ", ")
	if method == "" {
		return nil, fmt.Errorf("names no quant_method; supported are %s", known)
	}
	open, ok := schemes[method]
	if !ok {
		return nil, fmt.Errorf("quant_method %q is not supported; supported are %s, or the f32, f16 or bf16 checkpoint, which can be quantized here", method, known)
	}
	return open(raw)
}

// refuse says what of a setting is supported.
func refuse(what string, found any, supported string) error {
	return fmt.Errorf("%s %v is not supported; %s", what, found, supported)
}

// instead is what to do about a layout that is not supported.
const instead = "open a checkpoint in the layout that it was converted from"

// groupSize reads the columns of a group; 0 stands for all.
func groupSize(stated ...*int) (int, error) {
	for _, n := range stated {
		switch {
		case n == nil:
			continue
		case *n == -1:
			return 0, nil
		case *n < 1 || *n > 1<<24:
			return 0, fmt.Errorf("group_size is %d, want -1 or a positive number", *n)
		}
		return *n, nil
	}
	return 0, fmt.Errorf("group_size is missing")
}
