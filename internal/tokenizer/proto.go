package tokenizer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Wire types of the protobuf encoding that occur in tokenizer.model
// (https://protobuf.dev/programming-guides/encoding).
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireGroup   = 3
	wireFixed32 = 5
)

// maxModelBytes bounds the tokenizer.model that is read: the largest in
// public use is about 5 MB, and offsets into the piece text are 32-bit.
const maxModelBytes = 64 << 20

// maxPieceBytes bounds one piece, and with it the cost of one step of
// merging. Pieces in public use have fewer than 200 bytes.
const maxPieceBytes = 4096

var errTruncated = errors.New("truncated protobuf")

// protoField is one field of a message. Only the member that belongs to
// its wire type is set.
type protoField struct {
	num  int
	wire int
	u    uint64 // varint, fixed32, fixed64
	b    []byte // length-delimited; aliases the input
}

// nextField reads the first field of msg and returns the rest.
func nextField(msg []byte) (f protoField, rest []byte, err error) {
	tag, n := binary.Uvarint(msg)
	if n <= 0 {
		return f, nil, errTruncated
	}
	msg = msg[n:]
	if tag>>3 == 0 || tag>>3 > 1<<29-1 {
		return f, nil, fmt.Errorf("protobuf field number %d is not valid", tag>>3)
	}
	f.num, f.wire = int(tag>>3), int(tag&7)
	switch f.wire {
	case wireVarint:
		f.u, n = binary.Uvarint(msg)
		if n <= 0 {
			return f, nil, errTruncated
		}
		return f, msg[n:], nil
	case wireFixed64:
		if len(msg) < 8 {
			return f, nil, errTruncated
		}
		f.u = binary.LittleEndian.Uint64(msg)
		return f, msg[8:], nil
	case wireFixed32:
		if len(msg) < 4 {
			return f, nil, errTruncated
		}
		f.u = uint64(binary.LittleEndian.Uint32(msg))
		return f, msg[4:], nil
	case wireBytes:
		size, n := binary.Uvarint(msg)
		if n <= 0 || size > uint64(len(msg)-n) {
			return f, nil, errTruncated
		}
		f.b = msg[n : n+int(size)]
		return f, msg[n+int(size):], nil
	case wireGroup:
		return f, nil, fmt.Errorf("protobuf group (field %d) is not supported", f.num)
	}
	return f, nil, fmt.Errorf("protobuf wire type %d (field %d) is not valid", f.wire, f.num)
}

// pieceType is ModelProto.SentencePiece.Type.
type pieceType uint8

const (
	typeNormal      pieceType = 1
	typeUnknown     pieceType = 2
	typeControl     pieceType = 3
	typeUserDefined pieceType = 4
	typeUnused      pieceType = 5
	typeByte        pieceType = 6
)

// modelProto is the part of sentencepiece_model.proto that encoding and
// decoding need. Field numbers stand beside the names.
type modelProto struct {
	pieces     pieceTable
	modelType  uint64 // trainer_spec.model_type 3: 1 unigram, 2 bpe, 3 word, 4 char
	wsSuffix   bool   // trainer_spec.treat_whitespace_as_suffix 24
	byteFall   bool   // trainer_spec.byte_fallback 35
	unkSurface string // trainer_spec.unk_surface 44

	charsMap    []byte // normalizer_spec.precompiled_charsmap 2
	dummyPrefix bool   // normalizer_spec.add_dummy_prefix 3
	removeExtra bool   // normalizer_spec.remove_extra_whitespaces 4
	escapeSpace bool   // normalizer_spec.escape_whitespaces 5

	denormMap []byte // denormalizer_spec.precompiled_charsmap 2
}

// parseModel reads a serialized ModelProto. All lengths are checked; piece
// text is copied, so that the file's bytes can be freed.
func parseModel(data []byte, breathe *pauses) (*modelProto, error) {
	if len(data) == 0 {
		return nil, errors.New("file is empty")
	}
	if len(data) > maxModelBytes {
		return nil, fmt.Errorf("file has %d bytes, more than the limit of %d", len(data), maxModelBytes)
	}
	// The defaults of the .proto file, for fields that are absent.
	m := &modelProto{
		modelType: 1, unkSurface: " \u2047 ",
		dummyPrefix: true, removeExtra: true, escapeSpace: true,
	}
	for len(data) > 0 {
		breathe.step()
		f, rest, err := nextField(data)
		if err != nil {
			return nil, err
		}
		data = rest
		if f.wire != wireBytes {
			continue
		}
		switch f.num {
		case 1:
			err = m.addPiece(f.b)
		case 2:
			err = m.readTrainer(f.b)
		case 3:
			err = m.readNormalizer(f.b)
		case 5:
			err = eachField(f.b, func(f protoField) {
				if f.num == 2 && f.wire == wireBytes {
					m.denormMap = f.b
				}
			})
		}
		if err != nil {
			return nil, err
		}
	}
	m.pieces.seal()
	return m, nil
}

func eachField(msg []byte, visit func(protoField)) error {
	for len(msg) > 0 {
		f, rest, err := nextField(msg)
		if err != nil {
			return err
		}
		msg = rest
		visit(f)
	}
	return nil
}

func (m *modelProto) addPiece(msg []byte) error {
	var (
		text  []byte
		score float32
		kind  = uint64(typeNormal)
	)
	err := eachField(msg, func(f protoField) {
		switch {
		case f.num == 1 && f.wire == wireBytes:
			text = f.b
		case f.num == 2 && f.wire == wireFixed32:
			score = math.Float32frombits(uint32(f.u))
		case f.num == 3 && f.wire == wireVarint:
			kind = f.u
		}
	})
	id := m.pieces.len()
	switch {
	case err != nil:
		return fmt.Errorf("piece %d: %w", id, err)
	case len(text) == 0:
		return fmt.Errorf("piece %d is empty", id)
	case len(text) > maxPieceBytes:
		return fmt.Errorf("piece %d has %d bytes, more than the limit of %d", id, len(text), maxPieceBytes)
	case score != score:
		return fmt.Errorf("piece %d has the score NaN", id)
	case kind < uint64(typeNormal) || kind > uint64(typeByte):
		return fmt.Errorf("piece %d has the unknown type %d", id, kind)
	}
	m.pieces.add(text, score, pieceType(kind))
	return nil
}

func (m *modelProto) readTrainer(msg []byte) error {
	err := eachField(msg, func(f protoField) {
		switch {
		case f.num == 3 && f.wire == wireVarint:
			m.modelType = f.u
		case f.num == 24 && f.wire == wireVarint:
			m.wsSuffix = f.u != 0
		case f.num == 35 && f.wire == wireVarint:
			m.byteFall = f.u != 0
		case f.num == 44 && f.wire == wireBytes:
			m.unkSurface = string(f.b)
		}
	})
	if err != nil {
		return fmt.Errorf("trainer_spec: %w", err)
	}
	return nil
}

func (m *modelProto) readNormalizer(msg []byte) error {
	err := eachField(msg, func(f protoField) {
		switch {
		case f.num == 2 && f.wire == wireBytes:
			m.charsMap = f.b
		case f.num == 3 && f.wire == wireVarint:
			m.dummyPrefix = f.u != 0
		case f.num == 4 && f.wire == wireVarint:
			m.removeExtra = f.u != 0
		case f.num == 5 && f.wire == wireVarint:
			m.escapeSpace = f.u != 0
		}
	})
	if err != nil {
		return fmt.Errorf("normalizer_spec: %w", err)
	}
	return nil
}
