package weights

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// goldenConfigs are the configurations of all architectures, as transformers writes them.
func goldenConfigs(t testing.TB) (list [][]byte) {
	t.Helper()
	for _, model := range []string{"ernie", "ernie-moe", "llama", "qwen2", "qwen3"} {
		raw, err := os.ReadFile(filepath.Join(goldens, model, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, raw)
	}
	return list
}

// checkAnyConfig reads a configuration. What is accepted must list its tensors in bounded memory, with sizes that do not overflow,
// and be accepted again as a manifest has it.
func checkAnyConfig(t *testing.T, raw []byte) {
	t.Helper()
	c, err := parseConfig(raw, nil)
	if err != nil {
		return
	}
	list := Tensors(c)
	if len(list) > 20*c.NumLayers+3*maxExperts+3 {
		t.Errorf("%d tensors in %d layers", len(list), c.NumLayers)
	}
	for _, s := range list {
		if s.Rows < 1 || s.K < 1 || s.Rows > 1<<24 || s.K > 1<<20 {
			t.Errorf("%s has shape %v", s.Name, s)
		}
	}
	if all, active := Parameters(c); active < 1 || all < active {
		t.Errorf("%d parameters, %d of them active", all, active)
	}
	var again Config
	if err := json.Unmarshal([]byte(mustJSON(t, c)), &again); err != nil {
		t.Error(err)
	}
	if err := again.validate(); err != nil {
		t.Errorf("accepted once, then refused: %v", err)
	}
}

// TestMutatedConfigs flips bits of configurations, cuts them, and puts absurd numbers in them.
func TestMutatedConfigs(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	for _, raw := range goldenConfigs(t) {
		for range 400 {
			b := append([]byte(nil), raw...)
			switch at := rng.IntN(len(b)); rng.IntN(4) {
			case 0:
				b[at] ^= 1 << rng.IntN(8)
			case 1:
				b = b[:at]
			default: // one digit becomes a number
				for b[at] < '0' || b[at] > '9' {
					at = (at + 1) % len(b)
				}
				number := []string{"9223372036854775807", "-1", "0", "1e308", "1048576", "1024", "null", "16777216", "8"}[rng.IntN(9)]
				b = append(b[:at:at], append([]byte(number), b[at+1:]...)...)
			}
			checkAnyConfig(t, b)
		}
	}
}

func FuzzConfig(f *testing.F) {
	for _, raw := range goldenConfigs(f) {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) { checkAnyConfig(t, raw) })
}
