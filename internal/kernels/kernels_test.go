package kernels

import (
	"context"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/cpu"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/wgsl"
)

// paramsOf are the Go structs that are written into the Params of each kernel.
var paramsOf = map[string]any{
	"embed": embedParams{}, "rms_norm": rmsNormParams{}, "rms_norm_serial": rmsNormParams{},
	"matvec": linearParams{}, "matmul": linearParams{}, "matmul_serial": linearParams{}, "matmul_uniform": uniformParams{},
	"matmul_tile": tileParams{}, "matmul_lanes": lanesParams{}, "sum_parts": sumPartsParams{}, "sum_norm": sumNormParams{},
	"rope": ropeParams{}, "rope_store": ropeStoreParams{}, "kv_store": kvStoreParams{}, "kv_store_i8": kvStoreParams{},
	"paged_attn_prefill": attnParams{}, "paged_attn_serial": splitParams{}, "paged_attn_decode": splitParams{},
	"paged_attn_grouped": splitParams{},
	"paged_attn_reduce":  reduceParams{}, "silu_mul": siluMulParams{}, "gather_rows": gatherRowsParams{},
	"norm_linear": normLinearParams{}, "qkv_rope_store": qkvParams{},
	"paged_attn_few": splitParams{}, "paged_attn_join": reduceParams{}, "attn_linear": attnLinearParams{}, "head_argmax": headArgmaxParams{}, "paged_attn_linear": pagedAttnLinearParams{},
	"qk_norm": qkNormParams{}, "gather_columns": gatherColumnsParams{},
	"moe_route": routeParams{}, "moe_group": groupParams{}, "moe_matvec": expertParams{}, "moe_matmul": expertParams{},
	"moe_serial": expertParams{}, "moe_combine": combineParams{},
	"argmax_partial": argmaxPartialParams{}, "argmax_blocks": argmaxPartialParams{}, "argmax_reduce": argmaxReduceParams{},
	"argmax_advance": argmaxAdvanceParams{}, "advance": advanceParams{},
	"sample": sampleParams{}, "penalize": penalizeParams{}, "sample_mass": topKParams{},
	"topk_slices": topKParams{}, "topk_pick": topKParams{},
	"topk_partial": topKParams{}, "topk_reduce_serial": topKParams{},
}

func TestParamsMatchTheTexts(t *testing.T) {
	field := regexp.MustCompile(`(?m)^  ([a-z0-9_]+): ([uf]32),`)
	for _, k := range wgsl.Kernels() {
		src, err := wgsl.Source(k.Name, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		params, _, _ := strings.Cut(src[strings.Index(src, "struct Params {"):], "\n}")
		fields := field.FindAllStringSubmatch(params, -1)
		v, ok := paramsOf[k.Name]
		if !ok {
			t.Errorf("%s has no struct", k.Name)
			continue
		}
		typ := reflect.TypeOf(v)
		if typ.NumField() != len(fields) || typ.Size()%16 != 0 {
			t.Errorf("%s: the text has %d fields, the struct %d in %d bytes", k.Name, len(fields), typ.NumField(), typ.Size())
			continue
		}
		for i, f := range fields {
			kind := map[string]reflect.Kind{"u32": reflect.Uint32, "f32": reflect.Float32}[f[2]]
			name := strings.ReplaceAll(f[1], "_", "")
			if got := typ.Field(i); !strings.EqualFold(got.Name, name) || got.Type.Kind() != kind {
				t.Errorf("%s: field %d is %s %s in the text, %s %s in the struct", k.Name, i, f[1], f[2], got.Name, got.Type)
			}
		}
	}
}

// fixture is a device with a few buffers.
type fixture struct {
	t   *testing.T
	dev gpu.Device
}

func open(t *testing.T) fixture {
	t.Helper()
	dev, err := cpu.Open(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dev.Close)
	return fixture{t, dev}
}

func (f fixture) buffer(words int) gpu.Buffer {
	f.t.Helper()
	buf, err := f.dev.NewBuffer("test", 4*int64(words), gpu.UsageStorage|gpu.UsageUniform|gpu.UsageCopyDst)
	if err != nil {
		f.t.Fatal(err)
	}
	return buf
}

func (f fixture) weight(rows, k int) Weight {
	return Weight{Rows: rows, K: k, Parts: []Part{{Rows: rows, Format: quant.Format{Kind: quant.F32}, Data: f.buffer(rows * k)}}}
}

func (f fixture) linear(rows int) LinearArgs {
	return LinearArgs{
		Rows: rows, X: f.buffer(rows * 8), W: f.weight(4, 8), Y: f.buffer(rows * 4), Step: gpu.Binding{Buffer: f.buffer(4)},
	}
}

func TestLinearChoosesByRows(t *testing.T) {
	f := open(t)
	for _, c := range []struct {
		tuning Tuning
		want   map[int]string // kernel and tokens per workgroup by bucket
	}{
		{TuningFor(gpu.Info{}), map[int]string{
			1: "matvec f32 ROWS_M=1 WIDE=0", 2: "matmul_lanes f32 GATED=0 LANES=32 NORM=0 ROWS=4", 5: "matmul_lanes f32 GATED=0 LANES=32 NORM=0 ROWS=4",
			32: "matmul_lanes f32 GATED=0 LANES=32 NORM=0 ROWS=4", 33: "matmul_tile f32 GATED=0 TM=4 TX=8 TY=8 VECS=8 WG=128",
			64: "matmul_tile f32 GATED=0 TM=4 TX=8 TY=8 VECS=8 WG=128",
		}},
		{Tuning{MatmulRows: 17, Prefer: []string{"no such", "matmul"}}, map[int]string{
			1: "matvec f32 ROWS_M=1 WIDE=0", 8: "matmul f32", 64: "matmul f32",
		}},
		{TuningFor(gpu.Info{BarrierFree: true}), map[int]string{
			1: "matmul_serial f32 FOURS=2 TOKENS=1 WIDE=0", 2: "matmul_serial f32 FOURS=4 TOKENS=4 WIDE=0",
			5: "matmul_serial f32 FOURS=4 TOKENS=4 WIDE=0", 64: "matmul_serial f32 FOURS=4 TOKENS=4 WIDE=0",
		}},
		{TuningFor(gpu.Info{BarrierFree: true, Kind: gpu.KindCPU}), map[int]string{
			1: "matmul_serial f32 FOURS=4 TOKENS=4 WIDE=0", 5: "matmul_serial f32 FOURS=4 TOKENS=4 WIDE=0",
		}},
		{Tuning{Deterministic: true, MatmulRows: 9}, map[int]string{
			1: "matmul_lanes f32 GATED=0 LANES=32 NORM=0 ROWS=4", 4: "matmul_lanes f32 GATED=0 LANES=32 NORM=0 ROWS=4", 64: "matmul_lanes f32 GATED=0 LANES=32 NORM=0 ROWS=4",
		}},
	} {
		s := NewTuned(f.dev, c.tuning)
		o, err := s.Linear(f.linear(64))
		if err != nil {
			t.Fatal(err)
		}
		for rows, want := range c.want {
			var labels []string
			for _, d := range o.(*op).choose(rows) {
				labels = append(labels, d.pipeline.desc.Label)
			}
			if got := strings.Join(labels, " + "); got != want {
				t.Errorf("%d rows take %q, want %q", rows, got, want)
			}
		}
		s.Release()
	}
}

// TestStretchesCoverEachRowOnce also holds them to what matmul_uniform needs: whole groups of tokens, inside one binding.
func TestStretchesCoverEachRowOnce(t *testing.T) {
	chunks := []int{4, 2048}
	for chunk := uniformTokens; chunk <= 320; chunk += uniformTokens {
		chunks = append(chunks, chunk)
	}
	for _, chunk := range chunks {
		for rows := 1; rows <= 300; rows++ {
			next := 0
			for _, st := range stretches(rows, chunk) {
				if st.row0 != next || st.row0 >= rows || st.rows%st.tokens != 0 || st.row0/chunk != (st.row0+st.rows-1)/chunk {
					t.Fatalf("%d rows by %d: stretches %v", rows, chunk, stretches(rows, chunk))
				}
				next += st.rows
			}
			if next < rows {
				t.Fatalf("%d rows by %d: stretches %v end at %d", rows, chunk, stretches(rows, chunk), next)
			}
		}
	}
	for _, c := range []struct {
		rows, chunk int
		want        []stretch
	}{
		{1, 40, []stretch{{1, 0, 1}}},
		{3, 40, []stretch{{4, 0, 4}}},
		{7, 40, []stretch{{8, 0, 40}}},
		{9, 40, []stretch{{8, 0, 8}, {1, 8, 1}}},
		{12, 40, []stretch{{8, 0, 8}, {4, 8, 4}}},
		{16, 40, []stretch{{8, 0, 40}}},
		{64, 40, []stretch{{8, 0, 40}, {8, 40, 40}}},
		{9, 4, []stretch{{4, 0, 4}, {4, 4, 4}, {1, 8, 1}}},
	} {
		if got := stretches(c.rows, c.chunk); !slices.Equal(got, c.want) {
			t.Errorf("stretches(%d, %d) = %v, want %v", c.rows, c.chunk, got, c.want)
		}
	}
}

func TestUniformRows(t *testing.T) {
	for k, want := range map[int]int{8: 2048, 384: 40, 1024: 16, 2048: 8, 3072: 4, 4096: 4, 4104: 0, 40: 408} {
		if got := uniformRows(k); got != want {
			t.Errorf("uniformRows(%d) = %d, want %d", k, got, want)
		}
	}
	if got := InputRows(41, 384); got != 40+43 { // the second binding begins with row 40 and shows 42.7 rows
		t.Errorf("InputRows(41, 384) = %d, want 83", got)
	}
}

func TestOpsShareWhatIsEqual(t *testing.T) {
	f := open(t)
	s := New(f.dev)
	defer s.Release()
	var ops []Op
	for range 2 * slotsPerArena {
		o, err := s.Linear(f.linear(1))
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, o)
	}
	if len(s.slots) != 1 || len(s.arena) != 1 || s.Pending() != 1 {
		t.Errorf("%d slots in %d buffers, %d pipelines; want 1 of each", len(s.slots), len(s.arena), s.Pending())
	}
	total := 0
	if err := s.Compile(context.Background(), func(_, n int) { total = n }); err != nil {
		t.Fatal(err)
	}
	if total != 1 || s.Pending() != 0 {
		t.Errorf("%d pipelines compiled, %d left", total, s.Pending())
	}
	if got := len(ops[0].Record(1)); got != 1 {
		t.Errorf("%d commands, want 1", got)
	}
}

func TestArenaGrows(t *testing.T) {
	f := open(t)
	s := New(f.dev)
	defer s.Release()
	for i := range slotsPerArena + 1 {
		if _, err := s.params(gatherRowsParams{Dim: uint32(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.arena) != 2 || s.used != 1 {
		t.Errorf("%d buffers, %d slots of the last one used; want 2 and 1", len(s.arena), s.used)
	}
}

func TestScratchServesOpsBuiltLater(t *testing.T) {
	f := open(t)
	s := NewTuned(f.dev, TuningFor(gpu.Info{}))
	defer s.Release()
	argmax := func(rows, vocab int) Op {
		o, err := s.Argmax(ArgmaxArgs{
			Rows: rows, Vocab: vocab, Logits: f.buffer(rows * vocab), IDs: f.buffer(rows), Step: gpu.Binding{Buffer: f.buffer(4)},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Compile(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		return o
	}
	for i, o := range []Op{argmax(1, 10), argmax(1, 8), argmax(3, 100)} {
		if n := len(o.Record(1)); n != 2 {
			t.Errorf("op %d has %d commands, want 2", i, n)
		}
	}
	if len(s.scratch) != 2 {
		t.Errorf("%d scratch buffers, want one for the first two ops and a larger one", len(s.scratch))
	}
}

func TestDecodePartsFitDeviceAndContext(t *testing.T) {
	s := &Set{tuning: Tuning{Workgroups: 1024}}
	for _, c := range []struct{ rows, heads, maxBlocks, want int }{
		{1, 16, 1, 1},      // 16 positions are less than a partition
		{1, 16, 128, 32},   // 2,048 positions: all the partitions there are
		{1, 16, 8192, 64},  // a long context is walked in strides
		{8, 16, 128, 16},   // 8 would do, the next of 1, 4, 16, ..
		{64, 16, 8192, 1},  // enough workgroups without a split
		{64, 2, 8192, 16},  //
		{1, 2, 8192, 1024}, // few heads
	} {
		if got := s.tuning.decodeParts(c.rows, c.heads, c.maxBlocks); got != c.want {
			t.Errorf("decodeParts(%d, %d, %d) = %d, want %d", c.rows, c.heads, c.maxBlocks, got, c.want)
		}
	}
}

func TestGroupedPartsFitDeviceAndContext(t *testing.T) {
	tuning := Tuning{Workgroups: 1024}
	for _, c := range []struct{ rows, heads, maxBlocks, parts, cut int }{
		{1, 16, 1, 1, 0},      // 16 positions are less than a partition
		{8, 16, 20, 4, 8},     // 320 positions have five
		{8, 16, 8192, 16, 8},  // a long context is walked in strides
		{16, 32, 8192, 8, 16}, //
		{64, 16, 8192, 4, 16}, // is not split: there are enough workgroups
	} {
		if got := tuning.groupedParts(c.rows, c.heads, c.maxBlocks); got != c.parts {
			t.Errorf("groupedParts(%d, %d, %d) = %d, want %d", c.rows, c.heads, c.maxBlocks, got, c.parts)
		}
		if got := tuning.groupedCut(c.rows, c.heads, c.maxBlocks); got != c.cut {
			t.Errorf("groupedCut(%d, %d, %d) = %d, want %d", c.rows, c.heads, c.maxBlocks, got, c.cut)
		}
	}
}

func TestRecordPanics(t *testing.T) {
	f := open(t)
	s := New(f.dev)
	defer s.Release()
	o, err := s.Linear(f.linear(2))
	if err != nil {
		t.Fatal(err)
	}
	panics := func(rows int, want string) {
		t.Helper()
		defer func() {
			if got, _ := recover().(string); !strings.HasPrefix(got, "BUG: ") || !strings.Contains(got, want) {
				t.Errorf("Record(%d) panics with %q, want %q", rows, got, want)
			}
		}()
		o.Record(rows)
	}
	panics(2, "before Compile")
	panics(0, "recorded for 0 rows, built for 2")
	panics(3, "recorded for 3 rows, built for 2")
}

func TestFaultyArguments(t *testing.T) {
	f := open(t)
	s := New(f.dev)
	defer s.Release()
	linear := func(change func(*LinearArgs)) error {
		a := f.linear(2)
		change(&a)
		_, err := s.Linear(a)
		return err
	}
	attention := func(change func(*AttentionArgs)) error {
		a := AttentionArgs{
			Rows: 1, Heads: 2, KVHeads: 1, HeadDim: 16, RowStride: 64, MaxBlocks: 1, Tokens: f.buffer(4), BlockTables: f.buffer(1),
			QKV: f.buffer(64), KCache: f.buffer(256), VCache: f.buffer(256), Out: f.buffer(32), Step: gpu.Binding{Buffer: f.buffer(4)},
		}
		change(&a)
		_, err := s.Attention(a)
		return err
	}
	experts := func(change func(*ExpertLinearArgs)) error {
		a := ExpertLinearArgs{
			Rows: 2, Experts: 4, TopK: 2, X: f.buffer(16), Y: f.buffer(8), YStride: 4, Chosen: f.buffer(4), Groups: f.buffer(GroupWords(2, 4, 2)),
			W: Weight{Rows: 8, K: 8, Parts: []Part{{Rows: 8, Data: f.buffer(64)}}}, Step: gpu.Binding{Buffer: f.buffer(4)},
		}
		change(&a)
		_, err := s.ExpertLinear(a)
		return err
	}
	q4 := quant.Format{Kind: quant.Q4, Group: 16}
	if err := experts(func(*ExpertLinearArgs) {}); err != nil {
		t.Error(err)
	}
	for want, err := range map[string]error{
		"":                                 linear(func(*LinearArgs) {}),
		"kernels: linear: X is missing":    linear(func(a *LinearArgs) { a.X = nil }),
		"linear: Y has 28 bytes, needs 32": linear(func(a *LinearArgs) { a.Y = f.buffer(7) }),
		"linear: XStride is 10, not a multiple of 4":          linear(func(a *LinearArgs) { a.XStride = 10 }),
		"linear: columns 1 to 5 do not fit into YStride 4":    linear(func(a *LinearArgs) { a.YOffset, a.YStride = 1, 4 }),
		"linear: the parts have 4 rows, not 5":                linear(func(a *LinearArgs) { a.W.Rows, a.YStride = 5, 5 }),
		"linear: part 0 has rows 1 to 5, expected from 0":     linear(func(a *LinearArgs) { a.W.Parts[0].Row0 = 1 }),
		"linear: part 0: quant: format q4g16: rows of 8 are ": linear(func(a *LinearArgs) { a.W.Parts[0].Format = q4 }),
		"data of part 0 (padded to 16 bytes) has 124 bytes":   linear(func(a *LinearArgs) { a.W.Parts[0].Data = f.buffer(31) }),
		"Step needs 16 bytes at an":                           linear(func(a *LinearArgs) { a.Step.Offset = 8 }),
		"x and y are one buffer, and one of them is written":  linear(func(a *LinearArgs) { a.Y = a.X }),
		"experts: TopK is 5, want 1 to 4":                     experts(func(a *ExpertLinearArgs) { a.TopK = 5 }),
		"experts: 513 experts, want 1 to 512":                 experts(func(a *ExpertLinearArgs) { a.Experts = 513 }),
		"the weight has 8 rows, no multiple of 3 experts":     experts(func(a *ExpertLinearArgs) { a.Experts = 3 }),
		"part 0 has 3 rows, which do not end with an expert": experts(func(a *ExpertLinearArgs) {
			a.W.Parts = []Part{{Rows: 3, Data: f.buffer(24)}, {Row0: 3, Rows: 5, Data: f.buffer(40)}}
		}),
		"experts: XStride is 8 and XSlot 8 for 2 slots of 8":  experts(func(a *ExpertLinearArgs) { a.XSlot = 8 }),
		"experts: columns 1 to 5 do not fit into YStride 4":   experts(func(a *ExpertLinearArgs) { a.YOffset = 1 }),
		"experts: Groups has 24 bytes":                        experts(func(a *ExpertLinearArgs) { a.Groups = f.buffer(6) }),
		"attention: 3 heads cannot share 2 KV heads":          attention(func(a *AttentionArgs) { a.Heads, a.KVHeads = 3, 2 }),
		"attention: head dimension 24 is not a multiple of":   attention(func(a *AttentionArgs) { a.HeadDim = 24 }),
		"KCache has 1024 bytes and VCache 1000, a block has":  attention(func(a *AttentionArgs) { a.VCache = f.buffer(250) }),
		"contexts of 20000 blocks are longer than 262144 pos": attention(func(a *AttentionArgs) { a.MaxBlocks = 20000 }),
		"attention: no cache of KVType(3)":                    attention(func(a *AttentionArgs) { a.KV = 3 }),
		"KCache has 1024 bytes and VCache 1024, a block has ": attention(func(a *AttentionArgs) { a.KVHeads, a.Heads = 2, 2 }),
	} {
		got := ""
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestTraffic(t *testing.T) {
	f := open(t)
	s := New(f.dev)
	defer s.Release()
	o, err := s.Linear(f.linear(2))
	if err != nil {
		t.Fatal(err)
	}
	// 4 rows of 8 f32 weights, and for each token 8 inputs and 4 outputs.
	if got, want := o.Traffic(2), int64(4*8*4+2*4*(8+4)); got != want {
		t.Errorf("traffic is %d bytes, want %d", got, want)
	}
}

func TestFourLanes(t *testing.T) {
	for k, want := range map[int]int{32: 32, 768: 32, 1024: 32, 1056: 64, 2048: 64, 3072: 96, 4096: 64, 6144: 96, 8192: 96} {
		if got := fourLanes(k); got != want {
			t.Errorf("fourLanes(%d) = %d, want %d", k, got, want)
		}
	}
}

func TestFourVariantsPutTheDefaultFirst(t *testing.T) {
	s := &Set{limits: gpu.DefaultLimits}
	if got := s.fourVariants(103424, 1024, false)[0].String(); got != "8x128" {
		t.Errorf("an LM head takes %s, want 8x128", got)
	}
	if got := s.fourVariants(1024, 2048, true)[0].String(); got != "4x256" {
		t.Errorf("with the largest workgroups it is %s, want 4x256", got)
	}
}

// TestFourVariantsFit holds the shapes to what every device has, with something for each number of lanes.
func TestFourVariantsFit(t *testing.T) {
	s := &Set{limits: gpu.DefaultLimits}
	for k, want := range map[int]string{1024: "4x64", 2048: "4x128", 3072: "4x96"} {
		if len(s.fourVariants(headRows, k, false)) == 0 {
			t.Errorf("nothing fits an LM head of %d inputs", k)
		}
		list := s.fourVariants(1024, k, false)
		if len(list) == 0 || list[0].String() != want {
			t.Fatalf("%d inputs: %v, want %s first", k, list, want)
		}
		for _, v := range list {
			if v.storage() > gpu.DefaultLimits.MaxWorkgroupMemory || v.wg > gpu.DefaultLimits.MaxInvocations || v.wg%v.lanes != 0 {
				t.Errorf("%d inputs: %v with %d lanes takes %d bytes", k, v, v.lanes, v.storage())
			}
		}
	}
}
