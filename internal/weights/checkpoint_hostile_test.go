package weights_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pagelight/pagelight/internal/weights"
	"github.com/pagelight/pagelight/internal/weights/checkpointtest"
)

// hostileFormats are small checkpoints of each kind.
func hostileFormats(t testing.TB) map[string]fstest.MapFS {
	t.Helper()
	out := map[string]fstest.MapFS{}
	for name, l := range map[string]checkpointtest.Layout{
		"awq":              {Method: "awq", Options: checkpointtest.Options{Bits: 4, Group: 16}},
		"gptq":             {Method: "gptq", Options: checkpointtest.Options{Bits: 4, Group: 16}},
		"gptq desc_act":    {Method: "gptq", Options: checkpointtest.Options{Bits: 8, Group: 16, Spread: true}},
		"pack-quantized":   {Method: "compressed-tensors", Options: checkpointtest.Options{Bits: 4, Group: 16}},
		"packed, in order": {Method: "compressed-tensors", Options: checkpointtest.Options{Bits: 4, Group: 16, Sym: true, Spread: true}},
		"int-quantized":    {Method: "int-quantized", Options: checkpointtest.Options{Bits: 8}},
	} {
		src, tensors, _ := small(t, l)
		out[name] = files(t, src, l.Config(), tensors)
	}
	block := func(module string, rows, k int) []checkpointtest.Tensor {
		return []checkpointtest.Tensor{floatTensor(module+".weight_scale_inv", "F32", (rows+127)/128, (k+127)/128)}
	}
	out["fp8"] = byteModel(t, "F8_E4M3", `{"quant_method":"fp8","weight_block_size":[128,128]}`, block)
	channel := func(module string, rows, _ int) []checkpointtest.Tensor {
		return []checkpointtest.Tensor{floatTensor(module+".weight_scale", "BF16", rows, 1)}
	}
	out["float-quantized"] = byteModel(t, "F8_E4M3", strings.NewReplacer("STRATEGY", "channel", "SIZE", "null").Replace(compressedFloat), channel)
	return out
}

// readWhole opens a checkpoint and reads all that a model needs.
func readWhole(ctx context.Context, fsys fstest.MapFS) error {
	src, err := weights.OpenFS(fsys, "some")
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }() // only read
	for _, s := range weights.Tensors(src.Config()) {
		if s.Vector {
			if _, err := src.Vector(ctx, s.Name); err != nil {
				return err
			}
			continue
		}
		info, err := src.Info(s.Name)
		if err != nil {
			return err
		}
		order, err := src.Order(ctx, s.Name)
		if err != nil {
			return err
		}
		if order != nil {
			sorted := slices.Sorted(slices.Values(order))
			if len(order) != info.K || sorted[0] != 0 || sorted[info.K-1] != int32(info.K-1) || len(slices.Compact(sorted)) != info.K {
				return fmt.Errorf("BUG: %s: the order of columns is no permutation", s.Name)
			}
		}
		for lo, hi := range weights.Pieces(src, s.Name, info, 4096) {
			rows, err := src.Rows(ctx, s.Name, lo, hi)
			if err != nil {
				return err
			}
			if n := (hi - lo) * info.Format.RowBytes(info.K); len(rows.Data.Bytes) != n {
				return fmt.Errorf("BUG: %s: %d bytes of rows, want %d", s.Name, len(rows.Data.Bytes), n)
			}
		}
	}
	return nil
}

var (
	shapeOf   = regexp.MustCompile(`"shape":\[[0-9,]*\]`)
	offsetsOf = regexp.MustCompile(`"data_offsets":\[[0-9,]*\]`)
	dtypeOf   = regexp.MustCompile(`"dtype":"[A-Z0-9_]*"`)
	nameOf    = regexp.MustCompile(`"model\.layers[^"]*"`)
	numberOf  = regexp.MustCompile(`("(?:bits|group_size|num_bits)": |[ [])(-?[0-9]+)([,\n\]])`)
)

var absurd = []string{"0", "-1", "2147483647", "1099511627776", "9223372036854775807", "9223372036854775808", "1e30"}

// mutate changes a checkpoint; must says that nobody can take the result for a right one.
func mutate(fsys fstest.MapFS, rnd *rand.Rand, kind int) (out fstest.MapFS, must bool) {
	file, config := slices.Clone(fsys["model.safetensors"].Data), string(fsys["config.json"].Data)
	n := 8 + int(binary.LittleEndian.Uint64(file))
	header, data := string(file[8:n]), file[n:]
	// one replaces one of the matches of a pattern in the header.
	one := func(re *regexp.Regexp, by func(old string, all []string) string) {
		all := re.FindAllStringIndex(header, -1)
		at := all[rnd.IntN(len(all))]
		header = header[:at[0]] + by(header[at[0]:at[1]], re.FindAllString(header, -1)) + header[at[1]:]
	}
	switch kind {
	case 0: // a bit of the header
		file[rnd.IntN(n)] ^= 1 << rnd.IntN(8)
		return withFiles(fsys, file, config), false
	case 1: // bits of the data
		for range 8 {
			data[rnd.IntN(len(data))] ^= 1 << rnd.IntN(8)
		}
		return withFiles(fsys, file, config), false
	case 2: // cut
		return withFiles(fsys, file[:rnd.IntN(len(file))], config), true
	case 3: // a dimension
		one(shapeOf, func(string, []string) string {
			return `"shape":[` + absurd[rnd.IntN(len(absurd))] + `,` + absurd[1+rnd.IntN(len(absurd)-1)] + `]`
		})
		must = true
	case 4: // two tensors in one place
		one(offsetsOf, func(old string, all []string) string {
			for {
				if by := all[rnd.IntN(len(all))]; by != old {
					return by
				}
			}
		})
		must = true
	case 5: // the length of the header
		binary.LittleEndian.PutUint64(file, 1<<63>>rnd.IntN(40)+uint64(rnd.IntN(2)))
		return withFiles(fsys, file, config), true
	case 6: // two tensors of one name
		one(nameOf, func(old string, all []string) string {
			for {
				if by := all[rnd.IntN(len(all))]; by != old {
					return by
				}
			}
		})
		must = true
	case 7: // a number of the configuration
		all := numberOf.FindAllStringSubmatchIndex(config, -1)
		at := all[rnd.IntN(len(all))]
		config = config[:at[4]] + absurd[rnd.IntN(len(absurd))] + config[at[5]:]
	case 8: // a type
		types := []string{"I8", "U8", "I32", "I64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "F4", "F128"}
		one(dtypeOf, func(string, []string) string { return `"dtype":"` + types[rnd.IntN(len(types))] + `"` })
	case 9: // all bits of a run of the data: groups, scales, zero points
		at := rnd.IntN(len(data))
		for i := range data[at:min(at+256, len(data))] {
			data[at+i] = 0xFF
		}
	}
	file = append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	return withFiles(fsys, append(file, data...), config), must
}

func withFiles(fsys fstest.MapFS, file []byte, config string) fstest.MapFS {
	out := fstest.MapFS{"model.safetensors": {Data: file}, "config.json": {Data: []byte(config)}}
	for name, f := range fsys {
		if out[name] == nil {
			out[name] = f
		}
	}
	return out
}

// TestMutatedCheckpoints reads 200 broken files of each format: an error where there has to be one, never a panic, and never
// more memory than 64 MiB. It does not run in parallel, so that nothing else allocates meanwhile.
func TestMutatedCheckpoints(t *testing.T) {
	const most = 64 << 20
	for name, fsys := range hostileFormats(t) {
		t.Run(name, func(t *testing.T) {
			if err := readWhole(t.Context(), fsys); err != nil {
				t.Fatalf("the right file: %v", err)
			}
			rnd := rand.New(rand.NewPCG(5, uint64(len(name))))
			refused := 0
			for i := range 200 {
				broken, must := mutate(fsys, rnd, i%10)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				err := readWhole(t.Context(), broken)
				runtime.ReadMemStats(&after)
				switch {
				case err != nil && strings.Contains(err.Error(), "BUG"):
					t.Errorf("file %d, changed in way %d: %v", i, i%10, err)
				case err != nil:
					refused++
				case must:
					t.Errorf("file %d, changed in way %d: no error", i, i%10)
				}
				if n := after.TotalAlloc - before.TotalAlloc; n > most {
					t.Errorf("file %d, changed in way %d: %d bytes were allocated", i, i%10, n)
				}
			}
			t.Logf("%d of 200 are refused", refused)
			if refused < 120 {
				t.Errorf("only %d of 200 are refused", refused)
			}
		})
	}
}

// FuzzCheckpoint gives one tensor of a checkpoint any type, shape and content, and the checkpoint any quantization_config. The
// file's header is right: FuzzSafetensors breaks those.
func FuzzCheckpoint(f *testing.F) {
	methods := []checkpointtest.Layout{
		{Method: "awq", Options: checkpointtest.Options{Bits: 4, Group: 16}},
		{Method: "gptq", Options: checkpointtest.Options{Bits: 4, Group: 16, Spread: true}},
		{Method: "compressed-tensors", Options: checkpointtest.Options{Bits: 4, Group: 16, Spread: true}},
		{Method: "int-quantized", Options: checkpointtest.Options{Bits: 8, Group: 16}},
	}
	var models [][]checkpointtest.Tensor
	var src weights.Source
	for i, l := range methods {
		var tensors []checkpointtest.Tensor
		src, tensors, _ = small(f, l)
		models = append(models, tensors)
		config := mustJSON(f, l.Config())
		for j, x := range tensors {
			if strings.HasPrefix(x.Name, qProj) {
				f.Add(uint8(i), uint8(j), x.DType, uint16(x.Shape[0]), uint16(x.Shape[len(x.Shape)-1]), x.Data, config)
			}
		}
	}
	f.Add(uint8(3), uint8(2), "F8_E4M3", uint16(32), uint16(32), make([]byte, 1024), `{"quant_method":"fp8","weight_block_size":[16,16]}`)
	f.Fuzz(func(t *testing.T, model, which uint8, dtype string, rows, cols uint16, content []byte, config string) {
		width := map[string]int{"I8": 1, "U8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F16": 2, "BF16": 2, "I32": 4, "F32": 4, "I64": 8}[dtype]
		n := int(rows) * int(cols) * width
		if width == 0 || n > 1<<20 || !json.Valid([]byte(config)) {
			return
		}
		tensors := slices.Clone(models[int(model)%len(models)])
		x := &tensors[int(which)%len(tensors)]
		x.DType, x.Shape = dtype, []int{int(rows), int(cols)}
		if rows == cols && len(content) == int(rows)*width {
			x.Shape, n = x.Shape[:1], len(content)
		}
		x.Data = append(slices.Clone(content), make([]byte, n)...)[:n]
		fsys, err := checkpointtest.Files(src.Config(), rawJSON(config), tensors)
		if err != nil {
			t.Fatal(err)
		}
		if err := readWhole(t.Context(), fsys); err != nil && strings.Contains(err.Error(), "BUG") {
			t.Fatal(err)
		}
	})
}

func mustJSON(t testing.TB, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestLoadingTakesLittleMemory reads matrices of 32 MiB, as a loader does, and looks at the heap: less than one of them.
func TestLoadingTakesLittleMemory(t *testing.T) {
	for _, l := range []checkpointtest.Layout{
		{Method: "awq", Options: checkpointtest.Options{Bits: 4, Group: 128}},
		{Method: "gptq", Options: checkpointtest.Options{Bits: 4, Group: 128, Spread: true}},
		{Method: "compressed-tensors", Options: checkpointtest.Options{Bits: 4, Group: 128}},
	} {
		t.Run(l.Method, func(t *testing.T) {
			c := &weights.Config{
				HiddenSize: 4096, IntermediateSize: 16384, NumLayers: 1, NumHeads: 32, NumKVHeads: 8, HeadDim: 128, VocabSize: 256,
				MaxPositions: 4096, RMSNormEps: 1e-5, RopeTheta: 500000, TieEmbeddings: true, EOS: []int32{2}, BOS: 1,
			}
			dir := t.TempDir()
			size := hollow(t, dir, c, l)
			src, err := weights.OpenDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := src.Close(); err != nil {
					t.Error(err)
				}
			}()
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			base, most := m.HeapAlloc, uint64(0)
			for _, name := range []string{"model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight"} {
				info, err := src.Info(name)
				if err != nil {
					t.Fatal(err)
				}
				for lo, hi := range weights.Pieces(src, name, info, 4<<20) {
					if _, err := src.Rows(t.Context(), name, lo, hi); err != nil {
						t.Fatal(err)
					}
					runtime.ReadMemStats(&m)
					most = max(most, m.HeapAlloc-min(base, m.HeapAlloc))
				}
			}
			t.Logf("%d MiB of weights took at most %d MiB of heap", size>>20, most>>20)
			if most > 32<<20 {
				t.Errorf("%d MiB of weights took %d MiB of heap, at most 32 allowed", size>>20, most>>20)
			}
		})
	}
}

// hollow writes a checkpoint whose tensors are all zeros, but for the groups of columns, and gives its size.
func hollow(t testing.TB, dir string, c *weights.Config, l checkpointtest.Layout) int64 {
	t.Helper()
	var tensors []checkpointtest.Tensor
	for _, s := range weights.Tensors(c) {
		add := func(name, dtype string, bytes int, shape ...int) {
			for _, d := range shape {
				bytes *= d
			}
			tensors = append(tensors, checkpointtest.Tensor{Name: name, DType: dtype, Shape: shape, Data: make([]byte, bytes)})
		}
		module, ok := strings.CutSuffix(s.Name, "_proj.weight")
		module += "_proj."
		groups := s.K / 128
		switch {
		case s.Vector:
			add(s.Name, "BF16", 2, s.K)
		case !ok:
			add(s.Name, "BF16", 2, s.Rows, s.K)
		case l.Method == "awq":
			add(module+"qweight", "I32", 4, s.K, s.Rows/8)
			add(module+"qzeros", "I32", 4, groups, s.Rows/8)
			add(module+"scales", "F16", 2, groups, s.Rows)
		case l.Method == "gptq":
			add(module+"qweight", "I32", 4, s.K/8, s.Rows)
			add(module+"qzeros", "I32", 4, groups, s.Rows/8)
			add(module+"scales", "F16", 2, groups, s.Rows)
			add(module+"g_idx", "I32", 4, s.K)
			index := tensors[len(tensors)-1].Data
			for i := range s.K {
				binary.LittleEndian.PutUint32(index[4*i:], uint32(i%groups))
			}
		default:
			add(module+"weight_packed", "I32", 4, s.Rows, s.K/8)
			add(module+"weight_scale", "F16", 2, s.Rows, groups)
			add(module+"weight_zero_point", "I32", 4, s.Rows/8, groups)
		}
	}
	fsys, err := checkpointtest.Files(c, l.Config(), tensors)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range fsys {
		if err := os.WriteFile(filepath.Join(dir, name), f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return int64(len(fsys["model.safetensors"].Data))
}

// BenchmarkUnpack reads a matrix of 16 million weights; the bytes are those on the device.
func BenchmarkUnpack(b *testing.B) {
	c := &weights.Config{
		HiddenSize: 4096, IntermediateSize: 4096, NumLayers: 1, NumHeads: 32, NumKVHeads: 8, HeadDim: 128, VocabSize: 256,
		MaxPositions: 4096, RMSNormEps: 1e-5, RopeTheta: 500000, TieEmbeddings: true, EOS: []int32{2}, BOS: 1,
	}
	for _, l := range []checkpointtest.Layout{
		{Method: "awq", Options: checkpointtest.Options{Bits: 4, Group: 128}},
		{Method: "gptq", Options: checkpointtest.Options{Bits: 4, Group: 128, Spread: true}},
		{Method: "compressed-tensors", Options: checkpointtest.Options{Bits: 4, Group: 128}},
	} {
		b.Run(l.Method, func(b *testing.B) {
			dir := b.TempDir()
			hollow(b, dir, c, l)
			src, err := weights.OpenDir(dir)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = src.Close() }() // only read
			const name = "model.layers.0.mlp.up_proj.weight"
			info, err := src.Info(name)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(info.Rows * info.Format.RowBytes(info.K)))
			for b.Loop() {
				for lo, hi := range weights.Pieces(src, name, info, 4<<20) {
					if _, err := src.Rows(b.Context(), name, lo, hi); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
