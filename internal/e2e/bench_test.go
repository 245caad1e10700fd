package e2e

import (
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/pagelight/pagelight/internal/bench"
	"github.com/pagelight/pagelight/internal/browsertest"
	"github.com/pagelight/pagelight/static"
)

// benchReport is what the page of measurements reports, as far as the tests look at it.
type benchReport struct {
	bench.Report
	Error string `json:"error"`
	Done  bool   `json:"done"`
}

// reports takes what the page sends to the server.
type reports struct {
	mu   sync.Mutex
	came []string
}

// take is for fileHost.through.
func (rs *reports) take(w http.ResponseWriter, r *http.Request) bool {
	if !strings.HasSuffix(r.URL.Path, "/api/bench") {
		return false
	}
	body, _ := io.ReadAll(r.Body)
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.came = append(rs.came, string(body))
	w.WriteHeader(http.StatusNoContent)
	return true
}

// only is the one report that came.
func (rs *reports) only(t *testing.T) (r bench.Report) {
	t.Helper()
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if len(rs.came) != 1 {
		t.Fatalf("%d reports came: %.500q", len(rs.came), rs.came)
	}
	if err := json.Unmarshal([]byte(rs.came[0]), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// measured waits for the page's report.
func (p *page) measured() benchReport {
	p.t.Helper()
	p.waitWithin(4*patience, "the measurement", `globalThis.pagelightBench?.done || globalThis.pagelightBench?.error`)
	return eval[benchReport](p, `pagelightBench`)
}

// benchLooks looks at the page of measurements in every size and look.
func (p *page) benchLooks(what string) {
	for name, size := range map[string][2]int64{"phone": {360, 740}, "desktop": {1280, 800}} {
		p.do("size", chromedp.EmulateViewport(size[0], size[1]))
		p.accessible(what + " on a " + name)
		if wide := eval[int](p, `document.documentElement.scrollWidth - innerWidth`); wide > 0 {
			p.t.Errorf("%s on a %s is %d pixels wider than the window", what, name, wide)
		}
		if dir := os.Getenv("PAGELIGHT_SCREENSHOTS"); dir != "" {
			eval[bool](p, `(document.querySelector("#state").scrollIntoView(), true)`)
			for _, l := range looks {
				p.look(l.theme, l.lang)
				p.capture(filepath.Join(dir, what+"-"+name+"-"+l.theme+"-"+l.lang+".png"))
			}
		}
	}
	p.look("light", "en")
}

// The page of measurements, driven by its address alone, measures the built-in model in the tab as the native program does, and reports it.
func TestBenchPage(t *testing.T) {
	b := browsertest.Start(t, browsertest.SwiftShader)
	host := serveSite(t)
	var sent reports
	host.through(sent.take)
	p := open(t, b, host.url, `{"theme":"light","lang":"en"}`)
	p.url = host.url + "bench.html?model=builtin&p=64,5000&n=1,4&d=0,32&b=2&r=1&start=1&report=1&device=gpu"
	p.load()
	got := p.measured()
	if got.Error != "" || got.Schema != bench.Schema || got.Tool != "pagelight bench page" || got.Version == "" || len(got.Runs) != 1 ||
		!strings.Contains(got.Machine.Browser, "Chrome") || len(got.Command) != 1 || got.Device.DispatchUS <= 0 {
		t.Fatalf("the report is %+v", got)
	}
	run := got.Runs[0]
	if run.Check.Verdict != bench.Passed || run.OpenS <= 0 || run.Token == nil || len(run.Profiles) == 0 {
		t.Errorf("the run is %+v", run)
	}
	var names []string
	for _, test := range run.Tests {
		names = append(names, test.Name)
		s := test.Stages
		if test.Speed.Min <= 0 || len(test.Speed.Samples) != 1 || s == nil || s.Dispatches <= 0 || s.Submits <= 0 || s.EncodeUS < 0 || s.WaitUS <= 0 || s.HostUS < 0 {
			t.Errorf("%s: %+v, stages %+v", test.Name, test, s)
		}
		// No speed of answers that were not compared: each test has cases of its own.
		if !slices.ContainsFunc(run.Check.Cases, func(c bench.CheckCase) bool { return c.Setting == test.Name && c.Answers > 0 && c.Compared > 0 }) {
			t.Errorf("nothing was compared in %s: %+v", test.Name, run.Check.Cases)
		}
	}
	if want := "pp64 tg1 tg4 tg1 @ d32 tg4 @ d32 b2 (pp128+tg64)"; strings.Join(names, " ") != want {
		t.Errorf("tests are %q, want %s", names, want)
	}
	for _, setting := range []string{"batch 2", "b2 (pp128+tg64)"} {
		if !slices.ContainsFunc(run.Check.Cases, func(c bench.CheckCase) bool { return c.Setting == setting && c.Case == "block" && c.Compared > 1 }) {
			t.Errorf("rows of %s are not compared with answers one at a time: %+v", setting, run.Check.Cases)
		}
	}
	if len(run.LeftOut) != 1 || run.LeftOut[0].Name != "pp5000" {
		t.Errorf("left out is %+v", run.LeftOut)
	}
	if rows := eval[int](p, `document.querySelectorAll("#lines tr").length`); rows != len(run.Tests) {
		t.Errorf("the table has %d rows for %d tests", rows, len(run.Tests))
	}
	p.says("#state", "Measured.")
	p.says("#check", "All answers agree")
	p.says("#left-out", "pp5000 left out: it needs a context of 5,001 tokens, there is room for 2,048.")
	p.says("#reported", "Reported to the server.")
	if r := sent.only(t); r.Version != got.Version || len(r.Runs) != 1 || len(r.Runs[0].Tests) != len(run.Tests) {
		t.Errorf("the server was told %+v", r)
	}
	p.benchLooks("bench")

	// Whoever stops it gets no more, and can begin again.
	p.do("start", chromedp.Click("#start"))
	p.wait("loading", `!document.querySelector("#stop").hidden`)
	time.Sleep(200 * time.Millisecond)
	p.do("stop", chromedp.Click("#stop"))
	p.wait("the end", `document.querySelector("#stop").hidden && document.querySelector("#state").textContent === "Stopped."`)
	// What is wrong with the form is told, and nothing is measured.
	for value, want := range map[string]string{"p=12x": `p=12x: numbers`, "r=0": `repetitions: must be 1 to 1000, got 0`, "p=5000": `leave nothing to measure: pp5000 left out`} {
		name, text, _ := strings.Cut(value, "=")
		eval[bool](p, `(document.querySelector("#r").value = "1", document.querySelector("#n").value = document.querySelector("#b").value = "0",
			document.querySelector("#`+name+`").value = "`+text+`", document.querySelector("#start").click(), true)`)
		p.wait("the refusal of "+value, `document.querySelector("#stop").hidden && document.querySelector("#state").textContent.includes("`+want+`")`)
		if !eval[bool](p, `document.querySelector("#results").hidden && document.querySelector("#state").dataset.kind === "problem"`) {
			t.Errorf("%s: results are shown", value)
		}
		eval[bool](p, `(document.querySelector("#p").value = "8", true)`)
	}
}

// A kernel that is wrong for the second of many answers: the page says which token it was, and no speed.
func TestBenchPageSaysWhatIsWrong(t *testing.T) {
	b := browsertest.Start(t, browsertest.SwiftShader)
	host := serveSite(t)
	var sent reports
	host.through(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/gpu.js") {
			return sent.take(w, r)
		}
		text, err := fs.ReadFile(static.FS(), "gpu.js")
		const made, right = "device.createShaderModule({ label, code })", "nan = nan || is_nan(bits);"
		if err != nil || !strings.Contains(string(text), made) {
			t.Errorf("gpu.js does not say %s: %v", made, err)
		}
		w.Header().Set("Content-Type", "text/javascript")
		_, _ = io.WriteString(w, strings.Replace(string(text), made,
			`device.createShaderModule({ label, code: code.replace("`+right+`", "`+right+` if (m == 1u) { bits = bits ^ SIGN; }") })`, 1))
		return true
	})
	p := open(t, b, host.url, `{"theme":"light","lang":"en"}`)
	p.url = host.url + "bench.html?model=builtin&p=8&n=4&d=0&b=2&r=1&profile=0&start=1&report=1&device=gpu"
	p.load()
	got := p.measured()
	if !strings.HasPrefix(got.Error, "wrong answers: batch 2, KV f16, case ") || len(got.Runs) != 1 || got.Runs[0].Check.Verdict != bench.Failed || len(got.Runs[0].Tests) != 0 {
		t.Errorf("the report is %+v", got)
	}
	p.says("#state", "Wrong answers, so there is no speed. batch 2, case ")
	p.says("#state", ", counted from 0, is ")
	if !eval[bool](p, `document.querySelector("#state").dataset.kind === "problem" && document.querySelector("#speeds").hidden && !document.querySelector("#lines tr")`) {
		t.Error("the page shows speeds")
	}
	if r := sent.only(t); len(r.Runs) != 1 || r.Runs[0].Check.Verdict != bench.Failed || len(r.Runs[0].Tests) != 0 {
		t.Errorf("the server was told %+v", r)
	}
	p.benchLooks("bench-failed")
}

// says fails unless an element's text holds words.
func (p *page) says(selector, words string) {
	p.t.Helper()
	if text := eval[string](p, `document.querySelector("`+selector+`").textContent`); !strings.Contains(text, words) {
		p.t.Errorf("%s says %q, not %q", selector, text, words)
	}
}
