package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// decoder says how the tokens of a tokenizer.json become text, token by
// token, so that a stream can do it.
type decoder struct {
	byteLevel    bool   // the token's own bytes
	byteFallback bool   // <0xAB> is that byte
	mark         string // becomes space; "" for none
	space        string
	strip        bool // a space that the text begins with is dropped
}

// parseDecoder reads the decoder of a tokenizer.json.
func parseDecoder(raw json.RawMessage) (decoder, error) {
	var d decoder
	items, err := flatten(raw, "decoders")
	if err != nil {
		return d, fmt.Errorf("decoder: %w", err)
	}
	if len(items) == 0 {
		return d, errors.New("there is no decoder; ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip and Sequence are supported")
	}
	fused := false
	for i, item := range items {
		if err := d.step(item, &fused); err != nil {
			return d, fmt.Errorf("decoder %d (%s): %w", i, item.kind, err)
		}
	}
	if d.byteLevel && len(items) > 1 {
		return d, errors.New("decoder: ByteLevel together with other decoders is not supported")
	}
	return d, nil
}

func (d *decoder) step(item typed, fused *bool) error {
	var o struct {
		AddPrefixSpace *bool                           `json:"add_prefix_space"`
		Pattern        struct{ String, Regex *string } `json:"pattern"`
		Content        string                          `json:"content"`
		Start, Stop    int
		metaspace
	}
	if err := json.Unmarshal(item.raw, &o); err != nil {
		return err
	}
	if *fused && item.kind != "Strip" && item.kind != "Fuse" {
		return errors.New("only Strip may follow Fuse")
	}
	replace := func(mark, space string) error {
		if d.mark != "" {
			return errors.New("more than one replacement is not supported")
		}
		d.mark, d.space = mark, space
		return nil
	}
	switch item.kind {
	case "ByteLevel":
		d.byteLevel = true
		return nil
	case "ByteFallback":
		d.byteFallback = true
		return nil
	case "Fuse":
		*fused = true
		return nil
	case "Metaspace":
		if err := o.fill(o.AddPrefixSpace); err != nil {
			return err
		}
		d.strip = o.PrependScheme != "never"
		return replace(o.Replacement, " ")
	case "Replace":
		if o.Pattern.String == nil || *o.Pattern.String == "" {
			return errors.New("only the replacement of a String is supported")
		}
		return replace(*o.Pattern.String, o.Content)
	case "Strip":
		if !*fused || o.Content != " " || o.Start > 1 || o.Stop != 0 {
			return errors.New("only stripping one space at the start, after Fuse, is supported")
		}
		d.strip = o.Start == 1
		return nil
	}
	return errors.New("this type is not supported; ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip and Sequence are")
}

// append appends the bytes of a token of the model to dst.
func (d *decoder) append(dst, piece []byte) []byte {
	if d.byteFallback {
		if b, ok := byteOfPiece(piece); ok {
			return append(dst, b)
		}
	}
	if d.mark == "" {
		return append(dst, piece...)
	}
	for {
		before, after, found := strings.Cut(string(piece), d.mark)
		dst = append(dst, before...)
		if !found {
			return dst
		}
		dst = append(dst, d.space...)
		piece = []byte(after)
	}
}
