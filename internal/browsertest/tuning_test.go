package browsertest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pagelight/pagelight/engine"
)

// asHardware has gpu.js take the software adapter for a GPU, so that kernels of GPUs run on it.
func asHardware(t *testing.T, files fstest.MapFS) {
	t.Helper()
	const head = "function isSoftware(info, adapter) {"
	before, after, ok := strings.Cut(string(files["gpu.js"].Data), head)
	if !ok {
		t.Fatal("gpu.js has changed")
	}
	files["gpu.js"] = &fstest.MapFile{Data: []byte(before + head + " return false;" + after)}
}

// keptTuning is what tuning.js keeps.
type keptTuning struct {
	Version  int               `json:"version"`
	Choices  map[string]string `json:"choices"`
	Measured []string          `json:"measured"`
}

const openTunings = `new Promise((resolve, reject) => {
	const request = indexedDB.open("pagelight-tuning", 1);
	request.onsuccess = () => resolve(request.result);
	request.onerror = () => reject(request.error);
}).then((db) => new Promise((resolve, reject) => {
	const t = db.transaction("texts", "readwrite");
	const all = t.objectStore("texts").getAll();
	all.onsuccess = () => { for (const e of all.result) change(e, t.objectStore("texts")); };
	t.oncomplete = () => { db.close(); resolve(JSON.stringify(all.result)); };
	t.onabort = () => reject(t.error);
}))`

// setTuning replaces what is kept by text.
func setTuning(t *testing.T, c *Client, text string) {
	t.Helper()
	Eval[string](t, c.Tab, 10*time.Second, fmt.Sprintf("{ const change = (e, store) => store.put({...e, text: %s}); %s }", marshal(t, text), openTunings))
}

// TestTuning measures kernels in a tab, with a request in the middle, and sees that what is kept is used, and what is broken is not.
func TestTuning(t *testing.T) {
	files := site(t, "ernie")
	asHardware(t, files)
	b := Start(t, SwiftShader)
	base := Serve(t, Mount{"/", files})
	c := b.NewClient(t, base)
	const slow = 5 * time.Minute // shaders of GPUs are large for a software adapter

	if a := c.Ask(loadMessage("x", "ernie", "tuning", "perhaps"), patience); a.Status != 400 {
		t.Errorf("a wrong option is answered by %s", a.Raw)
	}
	// Steps of few tokens only: the kernels for many take the software adapter a minute to compile.
	load := func(c *Client) []string {
		var ready struct{ Info engine.Info }
		started := time.Now()
		c.MustAsk(loadMessage("l", "ernie", "max_model_len", 64, "max_seqs", 1, "max_batched_tokens", 4), "ready", slow).Decode(t, &ready)
		t.Logf("ready after %v", time.Since(started))
		return ready.Info.Notes
	}
	load(c)
	golden := goldenCases(t, "ernie")[0]
	answer := func(c *Client, id string) (ids []int32) {
		t.Helper()
		a := c.Ask(generateMessage(id, golden.InputIDs, 4), slow)
		if a.Type != "done" {
			t.Fatalf("%s", a.Raw)
		}
		for _, ch := range chunks(t, a) {
			ids = append(ids, ch.Data.Pagelight.TokenIDs...)
		}
		return ids
	}
	before := answer(c, "before")
	if !slices.Equal(before, golden.Greedy[:len(before)]) || len(before) != 4 {
		t.Errorf("the answer is %v, the known one begins with %v", before, golden.Greedy)
	}
	c.Post(Message{"type": "tune", "id": "t", "only": "paged_attn_few"})
	time.Sleep(300 * time.Millisecond)
	if got := answer(c, "between"); !slices.Equal(got, before) {
		t.Errorf("while kernels are measured %v, before %v", got, before)
	}
	if c.Count("t") > 0 {
		t.Log("measuring was over before the request came")
	}
	var tuned struct {
		Choices []engine.Measured
		Kept    bool
	}
	c.Wait("t", slow).Decode(t, &tuned)
	if len(tuned.Choices) != 1 || !tuned.Kept || len(tuned.Choices[0].Times)+len(tuned.Choices[0].Rejected) < 2 {
		t.Fatalf("measured %+v", tuned)
	}
	m := tuned.Choices[0]
	if len(m.Rejected) > 0 {
		t.Errorf("variants were left out: %v", m.Rejected)
	}
	if !slices.ContainsFunc(mapKeys(m.Times), func(v string) bool { return strings.HasSuffix(v, "subgroups") }) {
		t.Errorf("no variant with subgroups among %v", m.Times)
	}

	// Another page of the same site finds it.
	var kept []struct{ Key, Text string }
	found := Eval[string](t, c.Tab, 10*time.Second, "{ const change = () => {}; "+openTunings+" }")
	if err := json.Unmarshal([]byte(found), &kept); err != nil || len(kept) != 1 {
		t.Fatalf("kept %s", found)
	}
	var was keptTuning
	if err := json.Unmarshal([]byte(kept[0].Text), &was); err != nil || !slices.Equal(was.Measured, []string{m.Key}) {
		t.Fatalf("kept %s", found)
	}
	c.MustAsk(Message{"type": "unload", "id": "u"}, "unloaded", patience) // what is left to measure takes long here
	was.Version, was.Choices = 1, map[string]string{m.Key: "subgroups"}   // whether it is faster or not
	setTuning(t, c, marshal(t, was))
	again := b.NewClient(t, base)
	if notes := load(again); !strings.Contains(strings.Join(notes, " "), "(1 known)") {
		t.Errorf("the next load says %q", notes)
	}
	if got := answer(again, "after"); !slices.Equal(got, before) {
		t.Errorf("with what was chosen %v, before %v", got, before)
	}
}

func mapKeys[V any](m map[string]V) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}
