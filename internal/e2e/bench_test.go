package e2e

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/pagelight/pagelight/internal/browsertest"
)

// benchReport is what the page of measurements reports, as far as the test looks at it.
type benchReport struct {
	Schema int    `json:"schema"`
	Tool   string `json:"tool"`
	Error  string `json:"error"`
	Done   bool   `json:"done"`
	Runs   []struct {
		Model struct {
			Name string `json:"name"`
		} `json:"model"`
		Check struct {
			Verdict string `json:"verdict"`
			Cases   []struct {
				Compared int `json:"compared"`
				Wrong    int `json:"wrong"`
			} `json:"cases"`
		} `json:"check"`
		Tests []struct {
			Name  string `json:"name"`
			Batch int    `json:"batch"`
			Speed struct {
				Median  float64   `json:"median"`
				Samples []float64 `json:"samples"`
			} `json:"tokens_per_second"`
			Stages struct {
				Dispatches float64 `json:"dispatches"`
				Submits    float64 `json:"submits"`
				Encode     float64 `json:"encode_us"`
			} `json:"stages"`
		} `json:"tests"`
	} `json:"runs"`
}

// The page of measurements, driven by its address alone, measures the built-in model in the tab and reports it.
func TestBenchPage(t *testing.T) {
	b := browsertest.Start(t, browsertest.SwiftShader)
	host := serveSite(t)
	var mu sync.Mutex
	var reports []string
	host.through(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/version") {
			_, _ = io.WriteString(w, `{"version":"test"}`)
			return true
		}
		if !strings.HasSuffix(r.URL.Path, "/api/bench") {
			return false
		}
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		reports = append(reports, string(body))
		w.WriteHeader(http.StatusNoContent)
		return true
	})
	p := open(t, b, host.url, `{"theme":"light","lang":"en"}`)
	p.url = host.url + "bench.html?model=builtin&p=64&n=8&d=0,32&b=2&r=2&start=1&report=1&device=gpu"
	p.load()
	p.wait("the measurement", `(globalThis.pagelightBench?.done && document.querySelector("#reported").textContent) || globalThis.pagelightBench?.error`)
	got := eval[benchReport](p, `pagelightBench`)
	if got.Error != "" || got.Schema != 1 || got.Tool != "pagelight bench page" || len(got.Runs) != 1 {
		t.Fatalf("the report is %+v", got)
	}
	run := got.Runs[0]
	if run.Check.Verdict != "passed" || len(run.Check.Cases) < 2 || run.Check.Cases[0].Compared < 8 {
		t.Errorf("the check is %+v", run.Check)
	}
	var names []string
	for _, test := range run.Tests {
		names = append(names, test.Name)
		if test.Speed.Median <= 0 || len(test.Speed.Samples) != 2 || test.Stages.Dispatches <= 0 || test.Stages.Submits <= 0 || test.Stages.Encode <= 0 {
			t.Errorf("%s: %+v", test.Name, test)
		}
	}
	if want := "pp64 tg8 tg8 @ d32 b2 (pp128+tg64)"; strings.Join(names, " ") != want {
		t.Errorf("tests are %q, want %s", names, want)
	}
	if rows := eval[int](p, `document.querySelectorAll("#lines tr").length`); rows != len(run.Tests) {
		t.Errorf("the table has %d rows for %d tests", rows, len(run.Tests))
	}
	mu.Lock()
	if len(reports) != 1 || !strings.Contains(reports[0], `"tg8 @ d32"`) || !strings.Contains(reports[0], `"version":"test"`) {
		t.Errorf("%d reports came: %.500q", len(reports), reports)
	}
	mu.Unlock()
	sizes := map[string][2]int64{"phone": {360, 740}, "desktop": {1280, 800}}
	for name, size := range sizes {
		p.do("size", chromedp.EmulateViewport(size[0], size[1]))
		p.accessible("the page of measurements on a " + name)
		if wide := eval[int](p, `document.documentElement.scrollWidth - innerWidth`); wide > 0 {
			t.Errorf("on a %s the page is %d pixels wider than the window", name, wide)
		}
		if dir := os.Getenv("PAGELIGHT_SCREENSHOTS"); dir != "" {
			for _, l := range looks {
				p.look(l.theme, l.lang)
				p.capture(filepath.Join(dir, "bench-"+name+"-"+l.theme+"-"+l.lang+".png"))
			}
		}
	}
	p.look("light", "en")

	// Whoever stops it gets no more, and can begin again.
	p.do("start", chromedp.Click("#start"))
	p.wait("loading", `!document.querySelector("#stop").hidden`)
	time.Sleep(200 * time.Millisecond)
	p.do("stop", chromedp.Click("#stop"))
	p.wait("the end", `document.querySelector("#stop").hidden && document.querySelector("#state").textContent === "Stopped."`)
	// A wrong number is told and nothing is measured.
	eval[bool](p, `(document.querySelector("#p").value = "12x", document.querySelector("#start").click(), true)`)
	p.wait("the refusal", `/p=12x/.test(document.querySelector("#state").textContent)`)
}
