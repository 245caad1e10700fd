package weights

import (
	"encoding/binary"
	"os"
	"testing"
)

// TestSyntheticFollowsItsRule compares with slices that the Python program which states the rule computed.
func TestSyntheticFollowsItsRule(t *testing.T) {
	t.Parallel()
	src, err := OpenSynthetic("ernie-4.5-0.3b")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile("testdata/synthetic.json")
	if err != nil {
		t.Fatal(err)
	}
	var slices []struct {
		Tensor string   `json:"tensor"`
		Row    int      `json:"row"`
		K      int      `json:"k"`
		First  []uint16 `json:"first"`
		Last   []uint16 `json:"last"`
		Sum    uint64   `json:"sum"`
	}
	mustUnmarshal(t, raw, &slices)
	if len(slices) < 15 {
		t.Fatalf("%d slices", len(slices))
	}
	for _, w := range slices {
		r, err := src.Rows(t.Context(), w.Tensor, w.Row, w.Row+1)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Data.Bytes) != 2*w.K {
			t.Fatalf("%s: a row of %d bytes", w.Tensor, len(r.Data.Bytes))
		}
		var sum uint64
		for i := range w.K {
			v := binary.LittleEndian.Uint16(r.Data.Bytes[2*i:])
			sum += uint64(v)
			if i < 8 && v != w.First[i] || i >= w.K-8 && v != w.Last[i-w.K+8] {
				t.Errorf("%s row %d: element %d is %#x", w.Tensor, w.Row, i, v)
			}
		}
		if sum != w.Sum {
			t.Errorf("%s row %d: sum %d, want %d", w.Tensor, w.Row, sum, w.Sum)
		}
	}
}

func TestSyntheticIsWhole(t *testing.T) {
	t.Parallel()
	src, err := OpenSynthetic("synthetic:ernie-4.5-0.3b")
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(src); err != nil {
		t.Fatal(err)
	}
	if err := src.Config().validate(); err != nil {
		t.Fatal(err)
	}
	if want := int64(2*360748032 + 2*37*1024); src.Bytes() != want { // norms are f32 on the device
		t.Errorf("Bytes() = %d, want %d", src.Bytes(), want)
	}
	_, err = OpenSynthetic("ernie-5")
	wantWords(t, err, "ernie-5", "synthetic:ernie-4.5-0.3b")
}

func BenchmarkSyntheticBF16(b *testing.B) {
	src, err := OpenSynthetic("ernie-4.5-0.3b")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(2 * 4096 * 1024)
	for b.Loop() {
		if _, err := src.Rows(b.Context(), "model.embed_tokens.weight", 0, 4096); err != nil {
			b.Fatal(err)
		}
	}
}
