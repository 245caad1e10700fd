package weights

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pagelight/pagelight/internal/quant"
)

// The bundle format; docs/bundle.md describes it.
const (
	bundleFormat  = "pagelight-bundle"
	bundleVersion = 1 // version 0 had fewer formats and no order; what it says means the same

	// ManifestFile is the manifest's name in a bundle.
	ManifestFile = "manifest.json"

	maxManifestBytes = 8 << 20
	maxShardBytes    = 32 << 20
	maxShards        = 1 << 16
	maxRuns          = 1 << 20 // of all tensors together
	maxFiles         = 64

	shardAlign   = 16 // of segments as they are written
	segmentAlign = 4  // that a device needs
)

// Manifest is manifest.json of a bundle.
type Manifest struct {
	Format  string           `json:"format"`
	Version int              `json:"version"`
	Config  Config           `json:"config"`
	Recipe  Recipe           `json:"recipe"`
	Files   []ManifestFileAt `json:"files"`
	Tensors []ManifestTensor `json:"tensors"`
	Shards  []ManifestShard  `json:"shards"`
}

// Recipe says how a bundle's weights were made. Nothing depends on it.
type Recipe struct {
	Source  string         `json:"source"`           // what was packed
	Summary string         `json:"summary"`          // in words
	Formats map[string]int `json:"formats"`          // number of matrices by format
	Bytes   int64          `json:"bytes"`            // of all weights
	Weights int64          `json:"weights"`          // how many there are
	Notice  string         `json:"notice,omitempty"` // licence and attribution, in words
}

// ManifestShard is a file of weights.
type ManifestShard struct {
	File   string `json:"file"` // sha256 in hex, then .bin
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// ManifestFileAt is a small file (tokenizer, licence) and the content-hashed file that holds it.
type ManifestFileAt struct {
	Name string `json:"name"`
	ManifestShard
}

// ManifestTensor is a tensor as a list of runs of rows.
type ManifestTensor struct {
	Name   string `json:"name"`
	Rows   int    `json:"rows"`
	K      int    `json:"k"`
	Format string `json:"format"` // as quant.Format.String writes it
	Runs   []Run  `json:"runs"`
	// Order says which input each column belongs to: K little-endian u32, a permutation of 0 to K-1. Nil: its own.
	Order *Span `json:"order,omitempty"`

	format quant.Format
	first  []int // row at which each run begins
}

// Run is rows that lie together.
type Run struct {
	Rows   int   `json:"rows"`
	Data   Span  `json:"data"`
	Scales *Span `json:"scales,omitempty"` // for formats that have scales
}

// Span is bytes of a shard.
type Span struct {
	Shard  int   `json:"shard"`
	Offset int64 `json:"offset"`
	Size   int64 `json:"size"`
}

// contentName is the file name and the hash of content.
func contentName(sum [sha256.Size]byte) (file, hash string) {
	hash = hex.EncodeToString(sum[:])
	return hash + ".bin", hash
}

// ParseManifest reads and checks manifest.json: after it, every number can be trusted, and Check says whether the model
// is whole.
func ParseManifest(raw []byte) (*Manifest, error) {
	m, err := parseManifest(raw)
	if err != nil {
		return nil, fmt.Errorf("weights: %s: %w", ManifestFile, err)
	}
	return m, nil
}

func parseManifest(raw []byte) (*Manifest, error) {
	if len(raw) > maxManifestBytes {
		return nil, fmt.Errorf("is larger than %d bytes", maxManifestBytes)
	}
	var head struct {
		Format  string `json:"format"`
		Version *int   `json:"version"`
	}
	if err := decodeJSON(raw, &head); err != nil {
		return nil, err
	}
	if head.Format != bundleFormat {
		return nil, fmt.Errorf("format is %q, want %q", head.Format, bundleFormat)
	}
	if head.Version == nil {
		return nil, fmt.Errorf("version is missing; this program reads versions 0 to %d", bundleVersion)
	}
	if *head.Version < 0 || *head.Version > bundleVersion {
		return nil, fmt.Errorf("version is %d; this program reads versions 0 to %d", *head.Version, bundleVersion)
	}
	m := new(Manifest)
	if err := decodeJSON(raw, m); err != nil {
		return nil, err
	}
	if err := m.Config.validate(); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if err := m.checkFiles(); err != nil {
		return nil, err
	}
	return m, m.checkTensors()
}

func (m *Manifest) checkFiles() error {
	if len(m.Shards) > maxShards || len(m.Files) > maxFiles {
		return fmt.Errorf("%d shards and %d files, at most %d and %d are accepted", len(m.Shards), len(m.Files), maxShards, maxFiles)
	}
	for i, s := range m.Shards {
		if err := s.check(); err != nil {
			return fmt.Errorf("shard %d: %w", i, err)
		}
	}
	names := map[string]bool{}
	for i, f := range m.Files {
		if f.Name == "" || len(f.Name) > 128 || strings.ContainsAny(f.Name, "/\\:\x00") || f.Name == "." || f.Name == ".." {
			return fmt.Errorf("file %d: %q is not a file's name", i, f.Name)
		}
		if names[f.Name] {
			return fmt.Errorf("file %q stands there twice", f.Name)
		}
		names[f.Name] = true
		if err := f.check(); err != nil {
			return fmt.Errorf("file %q: %w", f.Name, err)
		}
	}
	return nil
}

func (s *ManifestShard) check() error {
	if raw, err := hex.DecodeString(s.SHA256); err != nil || len(raw) != sha256.Size || strings.ToLower(s.SHA256) != s.SHA256 {
		return fmt.Errorf("sha256 is %.80q, want %d lower-case hex digits", s.SHA256, 2*sha256.Size)
	}
	if s.File != s.SHA256+".bin" {
		return fmt.Errorf("file is %.80q, want %q", s.File, s.SHA256+".bin")
	}
	if s.Size < 0 || s.Size > maxShardBytes {
		return fmt.Errorf("size is %d, want 0 to %d", s.Size, maxShardBytes)
	}
	return nil
}

func (m *Manifest) checkTensors() error {
	names := map[string]bool{}
	spans := make([][]Span, len(m.Shards))
	runs := 0
	for i := range m.Tensors {
		t := &m.Tensors[i]
		if names[t.Name] {
			return fmt.Errorf("tensor %q stands there twice", t.Name)
		}
		names[t.Name] = true
		if runs += len(t.Runs); runs > maxRuns {
			return fmt.Errorf("more than %d runs of rows", maxRuns)
		}
		if err := t.check(m.Shards, spans); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
	}
	for i, in := range spans {
		slices.SortFunc(in, func(a, b Span) int { return cmp.Compare(a.Offset, b.Offset) })
		for j := 1; j < len(in); j++ {
			if in[j].Offset < in[j-1].Offset+in[j-1].Size {
				return fmt.Errorf("shard %d: the segments at %d and %d overlap", i, in[j-1].Offset, in[j].Offset)
			}
		}
	}
	return nil
}

// check checks a tensor and adds its segments to the lists of their shards.
func (t *ManifestTensor) check(shards []ManifestShard, spans [][]Span) error {
	var err error
	if t.format, err = quant.ParseFormat(t.Format); err != nil {
		return err
	}
	if t.Rows < 1 || t.Rows > 1<<24 || t.K < 1 || t.K > 1<<24 {
		return fmt.Errorf("shape [%d %d]", t.Rows, t.K)
	}
	if t.Rows > 1 || t.format.Kind != quant.F32 { // vectors are f32 and have any length
		if err := t.format.Check(t.K); err != nil {
			return err
		}
	}
	rows := 0
	for i, r := range t.Runs {
		if r.Rows < 1 || r.Rows > t.Rows-rows {
			return fmt.Errorf("run %d has %d rows; %d of %d are left", i, r.Rows, t.Rows-rows, t.Rows)
		}
		t.first = append(t.first, rows)
		rows += r.Rows
		scales := int64(r.Rows) * int64(t.format.ScaleBytes(t.K))
		if (r.Scales != nil) != (scales > 0) {
			return fmt.Errorf("run %d: %s takes %d bytes of scales", i, t.Format, scales)
		}
		if err := r.Data.check(shards, int64(r.Rows)*int64(t.format.RowBytes(t.K))); err != nil {
			return fmt.Errorf("run %d: data: %w", i, err)
		}
		spans[r.Data.Shard] = append(spans[r.Data.Shard], r.Data)
		if r.Scales == nil {
			continue
		}
		if err := r.Scales.check(shards, scales); err != nil {
			return fmt.Errorf("run %d: scales: %w", i, err)
		}
		spans[r.Scales.Shard] = append(spans[r.Scales.Shard], *r.Scales)
	}
	if rows != t.Rows {
		return fmt.Errorf("the runs have %d rows, the tensor has %d", rows, t.Rows)
	}
	if t.Order != nil {
		if err := t.Order.check(shards, 4*int64(t.K)); err != nil {
			return fmt.Errorf("order: %w", err)
		}
		spans[t.Order.Shard] = append(spans[t.Order.Shard], *t.Order)
	}
	return nil
}

func (s Span) check(shards []ManifestShard, size int64) error {
	if s.Shard < 0 || s.Shard >= len(shards) {
		return fmt.Errorf("shard %d of %d", s.Shard, len(shards))
	}
	if s.Size != size {
		return fmt.Errorf("size is %d, want %d", s.Size, size)
	}
	if all := shards[s.Shard].Size; s.Offset < 0 || s.Offset > all || s.Size > all-s.Offset {
		return fmt.Errorf("%d bytes at %d of shard %d, which has %d", s.Size, s.Offset, s.Shard, all)
	}
	if s.Offset%segmentAlign != 0 {
		return fmt.Errorf("offset %d is no multiple of %d", s.Offset, segmentAlign)
	}
	return nil
}

// encode is the manifest as it is written: the same bytes for the same content.
func (m *Manifest) encode() ([]byte, error) {
	raw, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return nil, fmt.Errorf("weights: %s: %w", ManifestFile, err)
	}
	if len(raw) > maxManifestBytes {
		return nil, errors.New("weights: the manifest would be too large")
	}
	return append(raw, '\n'), nil
}
