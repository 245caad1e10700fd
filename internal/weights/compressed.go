package weights

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/pagelight/pagelight/internal/quant"
)

// compressed is what compressed-tensors writes (neuralmagic/compressed-tensors, compressors/quantized_compressors,
// quantization/quant_args.py), b bits:
//
//	pack-quantized
//	  weight_packed      i32 [out, in*b/32]           32/b inputs to a word, the first in the lowest bits, code + 2^(b-1)
//	  weight_scale       [out, in/group], [out, 1] (channel) or one (tensor)
//	  weight_zero_point  i32 [out*b/32, in/group]     32/b outputs to a word, likewise; or i8 [out, in/group]
//	  weight_shape       i32 or i64 [2]               out, in
//	  weight_g_idx       i32 [in]                     the group of each input; all -1 means none
//	int-quantized, naive-quantized
//	  weight             i8 [out, in], with scales as above and zero points i8 in their shape
//	float-quantized, naive-quantized
//	  weight             f8 [out, in], with scales as above or those of blocks
//	weight = (code - zero) * scale
//
// What it says about activations is about how other programs multiply; weights are the same, and activations stay f32 here.
type compressed struct {
	groups []compressedGroup
	ignore targets
}

// compressedGroup is one of config_groups.
type compressedGroup struct {
	name     string
	targets  targets
	format   string
	bits     int
	float    bool
	sym      bool
	strategy string
	size     int    // of a group
	block    [2]int // of strategy block
}

// maxConfigGroups bounds the config_groups of a checkpoint; one or two are usual.
const maxConfigGroups = 256

// compressedFormats are those that can be read, with what they hold.
var compressedFormats = map[string]struct{ ints, floats bool }{
	"pack-quantized":  {ints: true},
	"int-quantized":   {ints: true},
	"float-quantized": {floats: true},
	"naive-quantized": {ints: true, floats: true},
}

type compressedArgs struct {
	Bits      *int   `json:"num_bits"`
	Type      string `json:"type"`
	Symmetric *bool  `json:"symmetric"`
	Strategy  string `json:"strategy"`
	Size      *int   `json:"group_size"`
	Block     []int  `json:"block_structure"`
}

func newCompressed(raw []byte) (scheme, error) {
	var c struct {
		Format string `json:"format"`
		Groups map[string]struct {
			Targets []string        `json:"targets"`
			Weights *compressedArgs `json:"weights"`
			Format  string          `json:"format"` // of this group, where the checkpoint mixes them
		} `json:"config_groups"`
		Ignore   []string `json:"ignore"`
		Sparsity struct {
			Format string `json:"format"`
		} `json:"sparsity_config"`
		Transform json.RawMessage `json:"transform_config"`
	}
	if err := decodeJSON(raw, &c); err != nil {
		return nil, err
	}
	if f := c.Sparsity.Format; f != "" && f != "dense" {
		return nil, refuse("compressed-tensors with sparsity", fmt.Sprintf("%q", f), "dense is")
	}
	if t := string(c.Transform); !isNull(c.Transform) && t != "{}" {
		return nil, errors.New("compressed-tensors with transform_config, which rotates activations, is not supported; checkpoints without it are")
	}
	switch {
	case len(c.Groups) == 0:
		return nil, errors.New("config_groups is missing or empty")
	case len(c.Groups) > maxConfigGroups:
		return nil, fmt.Errorf("%d config_groups, at most %d are accepted", len(c.Groups), maxConfigGroups)
	}
	var s compressed
	var err error
	if s.ignore, err = newTargets(c.Ignore); err != nil {
		return nil, fmt.Errorf("ignore: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Groups)) {
		in := c.Groups[name]
		g := compressedGroup{name: name, format: c.Format}
		if in.Format != "" {
			g.format = in.Format
		}
		if in.Weights == nil {
			continue // only activations, or the cache
		}
		if g.targets, err = newTargets(in.Targets); err == nil {
			err = g.read(in.Weights)
		}
		if err != nil {
			return nil, fmt.Errorf("config_groups: %s: %w", name, err)
		}
		s.groups = append(s.groups, g)
	}
	if len(s.groups) == 0 {
		return nil, errors.New("no config_group has weights")
	}
	return &s, nil
}

// read takes over what a group says about weights.
func (g *compressedGroup) read(a *compressedArgs) (err error) {
	g.bits, g.float, g.sym, g.strategy = 8, a.Type == "float", true, a.Strategy
	set(&g.bits, a.Bits)
	set(&g.sym, a.Symmetric)
	holds, ok := compressedFormats[g.format]
	if !ok {
		known := "pack-quantized, int-quantized, float-quantized and naive-quantized are"
		return refuse("compressed-tensors format", fmt.Sprintf("%q", g.format), known)
	}
	if a.Type != "" && a.Type != "int" && a.Type != "float" {
		return refuse("weights of type", fmt.Sprintf("%q", a.Type), "int and float are")
	}
	if g.float && !holds.floats || !g.float && !holds.ints {
		return fmt.Errorf("format %s with weights of type %q", g.format, a.Type)
	}
	switch {
	case g.float && g.bits != 8:
		return refuse("floats with num_bits", g.bits, "8 is")
	case g.bits != 4 && g.bits != 8:
		return refuse("num_bits", g.bits, "4 and 8 are")
	}
	if g.strategy == "" { // as the tool infers it
		g.strategy = "tensor"
		if a.Size != nil {
			g.strategy = "group"
			if *a.Size == -1 {
				g.strategy = "channel"
			}
		}
	}
	switch g.strategy {
	case "tensor", "channel":
	case "group":
		g.size, err = groupSize(a.Size)
		if err == nil && g.size == 0 {
			g.strategy = "channel"
		}
	case "block":
		if !g.float {
			return refuse("strategy", "block for integers", "tensor, channel and group are")
		}
		g.block, err = blockSize("block_structure", a.Block)
		if err == nil && g.block[0] == 0 {
			err = errors.New("block_structure is missing")
		}
	default:
		err = refuse("strategy of weights", fmt.Sprintf("%q", g.strategy), "tensor, channel, group and block are")
	}
	return err
}

func (s *compressed) name() string { return "compressed-tensors" }

func (s *compressed) quantizes(suffix string, t dirTensor) bool {
	switch suffix {
	case "weight_packed":
		return true
	case "weight":
		_, err := floatFormat(t.dtype)
		return err != nil
	}
	return false
}

// group finds the settings of a module: by its name, else by its class, which for whatever has packed weights is Linear, but
// for embeddings.
func (s *compressed) group(module string) (*compressedGroup, error) {
	if s.ignore.match(module) {
		return nil, errors.New("is quantized, but its module is in the list ignore of quantization_config")
	}
	if len(s.groups) == 1 {
		return &s.groups[0], nil
	}
	for i := range s.groups {
		if s.groups[i].targets.match(module) {
			return &s.groups[i], nil
		}
	}
	for i := range s.groups {
		if s.groups[i].targets.names[moduleClass(module)] {
			return &s.groups[i], nil
		}
	}
	for _, g := range s.groups {
		if g.targets.odd != "" {
			return nil, fmt.Errorf("belongs to none of config_groups, unless by the pattern %q, which is of a kind that is not supported", g.targets.odd)
		}
	}
	return nil, errors.New("belongs to none of config_groups")
}

func (s *compressed) matrix(p *parts) (*packedMatrix, error) {
	suffix := "weight"
	if p.has("weight_packed") {
		suffix = "weight_packed"
		p.alone(suffix)
	}
	g, err := s.group(p.module)
	if err != nil {
		p.fail(suffix, "%w", err)
		return nil, p.err
	}
	switch {
	case g.float && g.strategy != "group":
		return p.floatMatrix("weight_scale", g.block)
	case g.format == "pack-quantized":
		return g.packed(p)
	}
	return g.bytes(p)
}

// packed is a matrix of pack-quantized.
func (g *compressedGroup) packed(p *parts) (*packedMatrix, error) {
	q := p.matrix("weight_packed", "I32")
	if p.err != nil {
		return nil, p.err
	}
	per := 32 / g.bits
	m := &packedMatrix{rows: q.shape[0], k: q.shape[1] * per}
	m.codes = codes{t: q, bits: g.bits}
	if p.has("weight_shape") {
		p.wantShape(m)
	}
	g.scales(p, m)
	half := 1 << (g.bits - 1)
	m.zeros = zeroPoints{value: uint8(half)}
	if !g.sym {
		z := p.get("weight_zero_point", "I32", "I8")
		m.zeros = zeroPoints{layout: zeroByRow, t: z, bits: g.bits, tensor: p.module + ".weight_zero_point"}
		if z.dtype == "I8" {
			g.byteZeros(p, m, half)
		} else {
			p.want("weight_zero_point", z, []int{(m.rows + per - 1) / per, m.scales.groups})
		}
	}
	if p.has("weight_g_idx") {
		p.index(m)
	}
	kind := quant.Q4
	if g.bits == 8 {
		kind = quant.Q8
	}
	return p.finish(m, kind, "weight_packed")
}

// bytes is a matrix with one byte for each weight: signed codes, or floats with scales of groups.
func (g *compressedGroup) bytes(p *parts) (*packedMatrix, error) {
	dtype, kind, flip := "I8", quant.Q8, uint32(0x80808080)
	if g.float {
		dtype, kind, flip = "F8_E4M3", quant.F8, 0
	}
	q := p.matrix("weight", dtype)
	if p.err != nil {
		return nil, p.err
	}
	m := &packedMatrix{rows: q.shape[0], k: q.shape[1]}
	m.codes = codes{t: q, bits: 8, flip: flip}
	g.scales(p, m)
	m.zeros = zeroPoints{value: 128}
	if !g.sym && !g.float {
		m.zeros = zeroPoints{t: p.get("weight_zero_point", "I8"), bits: 8, tensor: p.module + ".weight_zero_point"}
		g.byteZeros(p, m, 128)
	}
	if p.has("weight_g_idx") {
		p.index(m)
	}
	return p.finish(m, kind, "weight")
}

// scales fills in the scales and what shares them.
func (g *compressedGroup) scales(p *parts, m *packedMatrix) {
	m.scales = p.floats("weight_scale")
	if g.strategy != "group" {
		p.wide(m, "weight_scale")
		return
	}
	m.size = g.size
	if m.k%m.size != 0 {
		p.fail("weight_scale", "is for groups of %d, which do not divide %d inputs", m.size, m.k)
	}
	m.scales.groups = (m.k + m.size - 1) / m.size
	p.want("weight_scale", m.scales.t, []int{m.rows, m.scales.groups})
}

// byteZeros fills in zero points that are signed bytes in the shape of the scales.
func (g *compressedGroup) byteZeros(p *parts, m *packedMatrix, add int) {
	m.zeros.bits, m.zeros.add, m.zeros.layout = g.bits, add, zeroBytes
	if add == 128 {
		m.zeros.bits = 8
	}
	p.want("weight_zero_point", m.zeros.t, m.scales.t.shape)
	if m.scales.rowStep > 1 {
		m.zeros.layout = zeroByteSame
	}
}

// index fills in the groups of the columns.
func (p *parts) index(m *packedMatrix) {
	t := p.get("weight_g_idx", "I32")
	p.want("weight_g_idx", t, []int{m.k})
	if p.err != nil {
		return
	}
	raw := make([]byte, 4*m.k)
	if err := readAt(t.file.r, raw, t.offset); err != nil {
		p.fail("weight_g_idx", "%w", err)
		return
	}
	for i := range m.k {
		if binary.LittleEndian.Uint32(raw[4*i:]) != math.MaxUint32 {
			m.index = &t
			return
		}
	}
}

// wantShape compares weight_shape with the shape of the codes.
func (p *parts) wantShape(m *packedMatrix) {
	t := p.get("weight_shape", "I32", "I64")
	p.want("weight_shape", t, []int{2})
	if p.err != nil {
		return
	}
	width := 4
	if t.dtype == "I64" {
		width = 8
	}
	raw := make([]byte, 2*width)
	if err := readAt(t.file.r, raw, t.offset); err != nil {
		p.fail("weight_shape", "%w", err)
		return
	}
	var shape [2]int64
	for i := range shape {
		if width == 4 {
			shape[i] = int64(int32(binary.LittleEndian.Uint32(raw[4*i:])))
		} else {
			shape[i] = int64(binary.LittleEndian.Uint64(raw[8*i:]))
		}
	}
	if shape != [2]int64{int64(m.rows), int64(m.k)} {
		p.fail("weight_shape", "says %v, but weight_packed has codes for [%d %d]", shape, m.rows, m.k)
	}
}
