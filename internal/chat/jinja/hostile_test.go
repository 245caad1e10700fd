package jinja

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
)

// hostile templates would take all time, memory or stack without limits.
var hostile = map[string]string{
	"huge range":            "{% for i in range(10**9) %}x{% endfor %}",
	"huge range in list":    "{{ range(10**9)|list|length }}",
	"ranges kept":           "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = ns.l + [range(100000)] %}{% endfor %}",
	"nested loops":          strings.Repeat("{% for i in range(1000) %}", 5) + strings.Repeat("{% endfor %}", 5),
	"nested loops, silent":  "{% set l = range(100000) %}" + strings.Repeat("{% for i in l if false %}{% endfor %}", 2000),
	"double by ~":           "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
	"double by +":           "{% set s = 'x' %}" + strings.Repeat("{% set s = s + s %}", 60),
	"double by *":           "{% set s = 'x' * 100000 * 100000 %}",
	"repeat overflow":       "{{ 'xy' * 9223372036854775807 }}",
	"double list":           "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
	"repeat list":           "{% set l = [1] * 10**12 %}",
	"nest list twice":       "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
	"nest list, compare":    "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
	"nest list, tojson":     "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|tojson }}",
	"nest list deep":        "{% set ns = namespace(l=[]) %}{% for i in range(50000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
	"nest tuple, hash":      "{% set ns = namespace(l=()) %}{% for i in range(50000) %}{% set ns.l = (ns.l,) %}{% endfor %}{{ {ns.l: 1} }}",
	"nest tuple, hash wide": "{% set ns = namespace(l=(1,)) %}{% for i in range(60) %}{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ {ns.l: 1} }}",
	"order deep":            "{% set ns = namespace(a=[1], b=[2]) %}{% for i in range(50000) %}{% set ns.a = [ns.a] %}{% set ns.b = [ns.b] %}{% endfor %}{{ ns.a < ns.b }}",
	"self reference":        "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}",
	"self reference, list":  "{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns.me }}",
	"endless macro":         "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
	"two endless macros":    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
	"branching macro":       "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(40) }}",
	"macro in default":      "{% macro m(a=m()) %}{{ a }}{% endmacro %}{{ m() }}",
	"endless caller":        "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}",
	"endless loop call":     "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
	"map of map":            "{{ [[1]]|map('map', 'map', 'map', 'map')|list }}{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
	"parentheses":           "{{ " + strings.Repeat("(", 100_000) + "1" + strings.Repeat(")", 100_000) + " }}",
	"brackets":              "{{ " + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + " }}",
	"minus signs":           "{{ " + strings.Repeat("-", 200_000) + "1 }}",
	"nots":                  "{{ " + strings.Repeat("not ", 60_000) + "1 }}",
	"long sum":              "{{ 1" + strings.Repeat("+1", 120_000) + " }}",
	"long filters":          "{{ 'a'" + strings.Repeat("|upper", 40_000) + " }}",
	"long attributes":       "{{ a" + strings.Repeat(".a", 120_000) + " }}",
	"long calls":            "{{ a" + strings.Repeat("()", 120_000) + " }}",
	"long conditions":       "{{ 1 if 0 else " + strings.Repeat("1 if 0 else ", 20_000) + "1 }}",
	"long powers":           "{{ 1" + strings.Repeat("**1", 80_000) + " }}",
	"long or":               "{{ 0" + strings.Repeat(" or 0", 50_000) + " }}",
	"nested ifs":            strings.Repeat("{% if 1 %}", 20_000),
	"nested targets":        "{% for " + strings.Repeat("(", 100_000) + "a in b %}",
	"nested macros":         strings.Repeat("{% macro m() %}", 15_000),
	"too long":              strings.Repeat("a", MaxSource+1),
	"indent":                "{{ 'a\nb'|indent(10**10) }}",
	"indent lines":          "{{ ('\n' * 100000)|indent(1000, blank=true) }}",
	"center":                "{{ 'a'|center(10**10) }}",
	"batch fill":            "{{ [1]|batch(10**10, 'x')|list }}",
	"slice":                 "{{ [1]|slice(10**10, 'x')|list }}",
	"zfill":                 "{{ 'a'.zfill(10**10) }}",
	"ljust":                 "{{ 'a'.ljust(10**10) }}",
	"percent width":         "{{ '%1000000000d' % 1 }}",
	"percent star":          "{{ '%*d' % (10**12, 1) }}",
	"percent precision":     "{{ '%.1000000000f' % 1.5 }}",
	"percent zeros":         "{{ '%.1000000000d' % 1 }}",
	"format filter":         "{{ '%1000000000s'|format('a') }}",
	"replace":               "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
	"replace nothing":       "{{ ('a' * 1000000).replace('', 'b' * 1000) }}",
	"join":                  "{{ range(100000)|join('x' * 100000) }}",
	"join method":           "{{ ('x' * 100000).join(['a'] * 100000) }}",
	"tojson indent":         "{{ [[1]]|tojson(indent=10**10) }}",
	"tojson indent wide":    "{{ ([1] * 100000)|tojson(indent=1000) }}",
	"tojson separators":     "{{ ([1] * 100000)|tojson(separators=('x' * 100000, '')) }}",
	"output":                "{% set s = 'x' * 100000 %}{% for i in range(1000) %}{{ s }}{% endfor %}",
	"captured output":       "{% set s = 'x' * 100000 %}{% for i in range(100000) %}{% set y %}{{ s }}{% endset %}{% endfor %}",
	"split often":           "{% set s = 'a,' * 90000 %}{% for i in range(100000) %}{% set y = s.split(',') %}{% endfor %}",
	"index text often":      "{% set s = 'é' * 900000 %}{% for i in range(100000) %}{% set y = s[800000] %}{% endfor %}",
	"compare text often":    "{% set s = 'a' * 1000000 %}{% set q = s ~ '' %}{% for i in range(100000) %}{% set y = s == q %}{% endfor %}",
	"search text often":     "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% set y = ('a' * 500 ~ 'b') in s %}{% endfor %}",
	"strip text often":      "{% set s = ' ' * 1000000 %}{% for i in range(100000) %}{% set y = s.strip() %}{% endfor %}",
	"strip many characters": "{{ ('a' * 1000000).strip('b' * 1000000 ~ 'a') }}",
	"hash text often":       "{% set s = 'a' * 1000000 %}{% set d = {s: 1} %}{% for i in range(100000) %}{% set y = d[s] %}{% endfor %}",
	"sort often":            "{% set l = range(100000)|reverse|list %}{% for i in range(1000) %}{% set y = l|sort %}{% endfor %}",
	"groups":                "{% for i in range(1000) %}{% set y = range(100000)|groupby(0) %}{% endfor %}",
	"unique texts":          "{% for i in range(100000) %}{% set y = ('a' * 100000)|unique|list %}{% endfor %}",
	"sum of lists":          "{{ ([[1] * 1000] * 100000)|sum(start=[])|length }}",
	"many arguments":        "{% macro m() %}{{ varargs|length }}{% endmacro %}{% for i in range(100000) %}{{ m(*range(100000)) }}{% endfor %}",
	"many names":            "{% macro m() %}{{ kwargs }}{% endmacro %}{{ m(**dict(range(100000)|map('string')|batch(2))) }}",
	"power":                 "{{ 10 ** 10 ** 10 }}",
	"shift by minimum":      "{{ (-9223372036854775807 - 1) // -1 }}",
	"url":                   "{{ ('é' * 900000)|urlencode }}",
	"escape":                "{{ ('<' * 1000000)|escape|escape|escape }}",
	"strftime":              "{{ strftime_now('%c' * 1000000) }}",
	"title":                 "{% set s = 'a ' * 500000 %}{% for i in range(100000) %}{% set y = s|title %}{% endfor %}",
	"truncate":              "{% set s = 'a ' * 500000 %}{% for i in range(100000) %}{% set y = s|truncate(5) %}{% endfor %}",
	"words":                 "{% set s = 'a ' * 500000 %}{% for i in range(100000) %}{% set y = s|wordcount %}{% endfor %}",
	"format text":           "{{ ('{}' * 100000).format(*(['x' * 100000] * 100000)) }}",
	"reverse text":          "{% set s = 'a' * 300000 %}{% for i in range(100000) %}{% set y = s[::-1] %}{% endfor %}",
	"in list often":         "{% set l = [0] * 100000 %}{% for i in range(100000) %}{% set y = 1 in l %}{% endfor %}",
	"iterate text":          "{% set s = 'a' * 150000 %}{% for i in range(100000) %}{% for c in s %}{% break %}{% endfor %}{% endfor %}",
	"namespace growth":      "{% for i in range(100000) %}{% for j in range(100) %}{% set x = namespace(a=1, b=2, c=3) %}{% endfor %}{% endfor %}",
}

func TestHostileTemplatesEndSoon(t *testing.T) {
	// Not parallel: it looks at the memory of the process.
	limits := DefaultLimits
	limits.Time = 500 * time.Millisecond // so that the test is short
	for name, source := range hostile {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		tmpl, err := Compile(source)
		if err == nil {
			_, err = tmpl.Render(t.Context(), nil, time.Time{}, limits)
		}
		took := time.Since(start)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		// A loaded machine and the race detector are slow; the limits are
		// what ends a template, and the clock only if those are too wide.
		if took > limits.Time+3*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 1<<30 {
			t.Errorf("%s: allocated %d MB", name, got>>20)
		}
		if testing.Verbose() {
			t.Logf("%-22s %8v %5d MB  %.90v", name, took.Round(time.Millisecond), (after.TotalAlloc-before.TotalAlloc)>>20, err)
		}
	}
}

func TestContextEndsRendering(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tmpl, err := Compile("{{ 1 }}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tmpl.Render(ctx, nil, time.Time{}, DefaultLimits); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	limits := DefaultLimits
	limits.Steps, limits.Time = 1<<60, 30*time.Millisecond
	slow, err := Compile(strings.Repeat("{% for i in range(1000) %}", 5) + strings.Repeat("{% endfor %}", 5))
	if err != nil {
		t.Fatal(err)
	}
	limits.Memory = 1 << 60
	var limit *LimitError
	if _, err := slow.Render(t.Context(), nil, time.Time{}, limits); !errors.As(err, &limit) || !strings.Contains(limit.What, "30ms") {
		t.Errorf("got %v, want the limit of time", err)
	}
}

func TestDeepDataAreRefused(t *testing.T) {
	t.Parallel()
	deep := []byte(strings.Repeat("[", 5000) + strings.Repeat("]", 5000))
	var limit *LimitError
	if _, err := render("{{ x }}", varsOf(t, []byte(`{"x":`+string(deep)+`}`)), time.Time{}); !errors.As(err, &limit) {
		t.Errorf("got %v, want a LimitError", err)
	}
}

// FuzzRender looks for templates that panic, hang or exceed the output limit.
// Committed inputs are the templates of cases.json.
func FuzzRender(f *testing.F) {
	cases, _ := loadCases(f)
	for _, c := range cases.Cases {
		f.Add(c.Template)
	}
	vars := varsOf(f, cases.Data)
	limits := DefaultLimits
	limits.Steps, limits.Memory, limits.Text = 200_000, 16<<20, 1<<18
	f.Fuzz(func(t *testing.T, source string) {
		tmpl, err := Compile(source)
		if err != nil {
			return
		}
		out, err := tmpl.Render(t.Context(), vars, time.Time{}, limits)
		if err == nil && len(out) > limits.Output {
			t.Errorf("%d bytes of output", len(out))
		}
	})
}
