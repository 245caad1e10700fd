package browsertest

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"
)

// faultySite is a site whose engine is testdata/faulty.
func faultySite(t *testing.T) fstest.MapFS {
	t.Helper()
	path := filepath.Join(t.TempDir(), "faulty.wasm")
	goWASM(t, "build", "-o", path, "./internal/browsertest/testdata/faulty")
	code, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	files := WorkerFiles(t)
	files["dist/engine.wasm"] = &fstest.MapFile{Data: code}
	return files
}

// However the engine ends, what was under way ends with an error that says why, and so does everything after it.
func TestCrashedEngine(t *testing.T) {
	b := Start(t, None)
	base := Serve(t, Mount{"/", faultySite(t)})
	for _, c := range []struct{ how, text string }{
		{"panic", "the kettle is empty"}, {"exit", "status 7"}, {"exit", "no tea today"}, {"memory", "out of memory"},
	} {
		t.Run(c.how, func(t *testing.T) {
			client := b.NewClient(t, base)
			client.MustAsk(Message{"type": "other", "id": "ping"}, "pong", patience)
			client.Post(Message{"type": "generate", "id": "open", "what": c.how})
			for _, id := range []string{"open", ""} { // the one under way, and one for whoever listens
				a := client.Wait(id, patience)
				if a.Type != "error" || a.Status != 500 || a.Error.Code != "crashed" || !strings.Contains(a.Error.Message, c.text) {
					t.Errorf("%q ends with %s, want %q in it", id, a.Raw, c.text)
				}
			}
			if a := client.Ask(Message{"type": "load", "id": "later"}, patience); a.Error.Code != "crashed" {
				t.Errorf("a later message is answered by %s", a.Raw)
			}
			client.Wait("onerror", patience)
		})
	}
}

// Pings go through the engine, so that one that hangs does not answer.
func TestHungEngine(t *testing.T) {
	b := Start(t, None)
	client := b.NewClient(t, Serve(t, Mount{"/", faultySite(t)}))
	client.MustAsk(Message{"type": "other", "id": "ping"}, "pong", patience)
	client.Post(Message{"type": "generate", "id": "hang"})
	client.Post(Message{"type": "ping", "id": "lost ping"})
	time.Sleep(time.Second)
	if n := client.Count("lost ping"); n != 0 {
		t.Errorf("%d answers from an engine that hangs", n)
	}
}

func TestEngineThatDoesNotLoad(t *testing.T) {
	b := Start(t, None)
	for name, content := range map[string]*fstest.MapFile{
		"missing": nil,
		"HTML":    {Data: []byte("<!doctype html><title>Not found</title>")},
		"cut":     {Data: faultySite(t)["dist/engine.wasm"].Data[:5000]},
	} {
		t.Run(name, func(t *testing.T) {
			files := WorkerFiles(t)
			if content != nil {
				files["dist/engine.wasm"] = content
			}
			client := b.NewClient(t, Serve(t, Mount{"/", files}))
			a := client.Ask(Message{"type": "load", "id": "l"}, patience)
			if a.Type != "error" || a.Error.Code != "error" || !strings.Contains(a.Error.Message, "engine") {
				t.Errorf("a load is answered by %s", a.Raw)
			}
		})
	}
}

// File hosts that do not know WebAssembly send it as any bytes.
func TestWrongMIMEType(t *testing.T) {
	b := Start(t, None)
	base := ServeThrough(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(&typeChanger{ResponseWriter: w}, r)
		})
	}, Mount{"/", faultySite(t)})
	b.NewClient(t, base).MustAsk(Message{"type": "other", "id": "ping"}, "pong", patience)
}

type typeChanger struct{ http.ResponseWriter }

func (w *typeChanger) WriteHeader(status int) {
	if w.Header().Get("Content-Type") == "application/wasm" {
		w.Header().Set("Content-Type", "application/octet-stream")
	}
	w.ResponseWriter.WriteHeader(status)
}

// requests counts requests by path and can be told to answer some itself.
type requests struct {
	mu     sync.Mutex
	counts map[string]int
	answer func(w http.ResponseWriter, r *http.Request, n int) bool // n-th request for that path
}

func (q *requests) through(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q.mu.Lock()
		q.counts[r.URL.Path]++
		n := q.counts[r.URL.Path]
		answer := q.answer
		q.mu.Unlock()
		if answer == nil || !answer(w, r, n) {
			next.ServeHTTP(w, r)
		}
	})
}

// shards counts the requests for shards since the last call, and sets how the next ones are answered.
func (q *requests) shards(answer func(w http.ResponseWriter, r *http.Request, n int) bool) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	sum := 0
	for path, n := range q.counts {
		if strings.HasSuffix(path, ".bin") {
			sum += n
		}
	}
	q.counts, q.answer = map[string]int{}, answer
	return sum
}

func TestBrokenModels(t *testing.T) {
	b := Start(t, None)
	files := site(t, "ernie")
	var shards []string
	for name := range files {
		if strings.HasPrefix(name, "models/ernie/") && strings.HasSuffix(name, ".bin") {
			shards = append(shards, filepath.Base(name))
		}
	}
	slices.Sort(shards)
	copyAs := func(name string) {
		for file, content := range files {
			if rest, ok := strings.CutPrefix(file, "models/ernie/"); ok {
				files["models/"+name+"/"+rest] = &fstest.MapFile{Data: bytes.Clone(content.Data)}
			}
		}
	}
	copyAs("changed")
	files["models/changed/"+shards[1]].Data[77] ^= 1
	copyAs("missing")
	delete(files, "models/missing/"+shards[2])
	copyAs("long")
	long := files["models/long/"+shards[0]]
	long.Data = append(long.Data, 0)
	copyAs("nonsense")
	files["models/nonsense/manifest.json"].Data = []byte(`{"format":"something else"}`)
	c := b.NewClient(t, Serve(t, Mount{"/", files}))
	for model, file := range map[string]string{
		"changed": shards[1], "missing": shards[2], "long": shards[0], "nonsense": "manifest.json", "nowhere": "manifest.json",
	} {
		// The models share files, and a file that was kept under its hash is as good as one that was fetched.
		Eval[bool](t, c.Tab, 10*time.Second, `caches.delete("pagelight-v0")`)
		a := c.Ask(loadMessage("load "+model, model, "device", "cpu"), patience)
		if a.Type != "error" || a.Error.Code != "broken_file" || a.Error.File != file {
			t.Errorf("%s: the load is answered by %s, want the file %s", model, a.Raw, file)
		}
	}
	c.MustAsk(loadMessage("load", "ernie", "device", "cpu"), "ready", patience)
}

// A network that fails now and then costs time only, what was fetched is kept, and a load can be cancelled.
func TestFetching(t *testing.T) {
	b := Start(t, None)
	q := &requests{counts: map[string]int{}}
	base := ServeThrough(t, q.through, Mount{"/", site(t, "ernie")})
	isShard := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, ".bin") }

	// A server that never answers for a shard: the load is given up when the page says so.
	q.shards(func(_ http.ResponseWriter, r *http.Request, _ int) bool {
		if isShard(r) {
			<-r.Context().Done()
			return true
		}
		return false
	})
	c := b.NewClient(t, base)
	c.Post(loadMessage("slow", "ernie", "device", "cpu"))
	for q.shards(q.answer) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	started := time.Now()
	c.Post(Message{"type": "cancel", "id": "slow"})
	if a := c.Wait("slow", patience); a.Error.Code != "cancelled" {
		t.Errorf("a cancelled load ends with %s", a.Raw)
	}
	t.Logf("cancelled in %v", time.Since(started))

	// The first answer for each shard is a 503, or breaks off.
	q.shards(func(w http.ResponseWriter, r *http.Request, n int) bool {
		if !isShard(r) || n > 1 {
			return false
		}
		if strings.HasSuffix(r.URL.Path, "0.bin") || strings.HasSuffix(r.URL.Path, "1.bin") {
			w.Header().Set("Content-Length", "1000000")
			_, _ = w.Write(make([]byte, 1000))
			return true // the server closes the connection, since bytes are missing
		}
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return true
	})
	c.MustAsk(loadMessage("flaky", "ernie", "device", "cpu"), "ready", patience)

	// Another tab finds everything in the cache.
	if n := q.shards(nil); n == 0 {
		t.Error("no requests for shards were counted")
	}
	other := b.NewClient(t, base)
	other.MustAsk(loadMessage("again", "ernie", "device", "cpu"), "ready", patience)
	if n := q.shards(nil); n != 0 {
		t.Errorf("%d shards were fetched again", n)
	}

	// What is wrong in the cache is fetched again.
	changed := Eval[int](t, other.Tab, 10*time.Second, `(async () => {
		const cache = await caches.open("pagelight-v0");
		const keys = (await cache.keys()).filter(({ url }) => url.includes("/pagelight-content/"));
		for (const key of keys) await cache.put(key, new Response(new Uint8Array(10)));
		return keys.length;
	})()`)
	other.MustAsk(loadMessage("repaired", "ernie", "device", "cpu"), "ready", patience)
	if n := q.shards(nil); n != changed || n == 0 {
		t.Errorf("%d of %d changed files were fetched again", n, changed)
	}

	// Without a network the model loads from what was kept, the manifest included.
	q.shards(func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if strings.HasPrefix(r.URL.Path, "/models/") {
			panic(http.ErrAbortHandler)
		}
		return false
	})
	other.MustAsk(loadMessage("offline", "ernie", "device", "cpu"), "ready", patience)
}

// The GPU process dies: the page hears of it, the answer under way ends, and the model can be loaded again.
func TestLostDevice(t *testing.T) {
	b := Start(t, SwiftShader)
	c := b.NewClient(t, Serve(t, Mount{"/", site(t, "ernie")}))
	c.MustAsk(loadMessage("l", "ernie"), "ready", patience)
	c.Post(generateMessage("r", []int32{5, 6, 7}, 3000))
	for c.Count("r") < 3 {
		time.Sleep(10 * time.Millisecond)
	}
	crash := func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.CallBrowser(ctx, browser.CrashGPUProcess, cdp.Empty{})
		return err
	}
	ctx, cancel := context.WithTimeout(c.Tab.Ctx, 10*time.Second)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.Func(crash)); err != nil {
		t.Logf("the call that ends the GPU process gave %v", err)
	}
	if a := c.Wait("r", patience); a.Type != "error" || a.Error.Code != "device_lost" {
		t.Errorf("the answer under way ends with %.500s", a.Raw)
	}
	c.Wait("lost", patience)
	if a := c.Ask(generateMessage("r2", []int32{5}, 1), patience); a.Error.Code != "device_lost" {
		t.Errorf("the next request is answered by %s", a.Raw)
	}
	c.MustAsk(loadMessage("l2", "ernie"), "ready", patience)
	c.MustAsk(generateMessage("r3", []int32{5, 6, 7}, 3), "done", patience)
}
