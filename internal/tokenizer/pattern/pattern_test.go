package pattern

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// pieces gives the bytes of each match and of what stands between matches.
func pieces(p *Pattern, text string) []int {
	out := []int{}
	done := 0
	add := func(n int) {
		if n > 0 {
			out = append(out, n)
		}
	}
	p.All(text, func(start, end int) {
		add(start - done)
		add(end - start)
		done = end
	})
	add(len(text) - done)
	return out
}

// The expected pieces are those of Hugging Face's tokenizers: see
// testdata/generate.py.
func TestSplitsAsOnigurumaDoes(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Texts    []string
		Patterns []struct {
			Name, Expr string
			Pieces     [][]int
		}
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Patterns) != 17 || len(file.Texts) != 251 {
		t.Fatalf("%d patterns and %d texts, want 17 and 251", len(file.Patterns), len(file.Texts))
	}
	for _, c := range file.Patterns {
		p, err := Compile(c.Expr)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		for i, text := range file.Texts {
			if got := pieces(p, text); !slices.Equal(got, c.Pieces[i]) {
				t.Errorf("%s of %q:\n got %v\nwant %v", c.Name, text, got, c.Pieces[i])
			}
		}
	}
}

func TestRefusesByName(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		"(":                             "not closed",
		")":                             "unmatched )",
		"[a":                            "a class is not closed",
		"[z-a]":                         "out of order",
		"*a":                            "nothing to repeat",
		"a{3,2}":                        "out of order",
		"a{2000}":                       "above 1000",
		`(?<=a)b`:                       "(?<",
		`(?<name>a)`:                    "(?<",
		`(?m:.)`:                        "(?m",
		`(a)\1`:                         `\1 is not supported`,
		`\p{Klingon}`:                   `"Klingon"`,
		`\p`:                            "no property",
		`\Ga`:                           `\G is not supported`,
		`[[:alpha:]]`:                   "POSIX",
		`[a&&b&&c]`:                     "more than one &&",
		`(?:a*)*`:                       "can match nothing",
		`\xe9`:                          "byte",
		`\x{110000}`:                    "no character",
		`a\`:                            "backslash",
		"\xff":                          "UTF-8",
		strings.Repeat("(", 200):        "nested more than 100",
		strings.Repeat("[", 200):        "nested more than 100",
		"(((((ab){9}){9}){9}){9}){9}":   "more than 16384 steps",
		strings.Repeat("a", maxExpr+1):  "more than the limit",
		`(?:(?:(?:x|){1000}){1000})+`:   "can match nothing",
		`(?:\p{Lu}|(?=a)){1000}`:        "can match nothing",
		`((((){1000}){1000}){1000}){9}`: "can match nothing",
	} {
		if _, err := Compile(expr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, want an error with %q", expr, err, want)
		}
	}
}

// Each text makes a matcher that forgets what it tried take quadratic time or worse. Eight times the text may take a few
// times eight times as long.
func TestHostileTextsTakeNoQuadraticTime(t *testing.T) {
	for _, c := range []struct{ expr, unit, end string }{
		{`\s+$`, " ", "x"},
		{`\s++$`, " ", "x"},
		{`\s*[\r\n]+|\s+(?!\S)|\s+`, " ", "x"},
		{`.*x|.`, "a", ""},
		{`[^a]*a|(?:b|c)`, "b", ""},
		{`\p{L}+\d`, "a", ""},
	} {
		p, err := Compile(c.expr)
		if err != nil {
			t.Fatal(err)
		}
		const short, long = 8 << 10, 64 << 10
		took := func(n int) time.Duration {
			text := strings.Repeat(c.unit, n) + c.end
			start := time.Now()
			p.All(text, func(_, _ int) {})
			return time.Since(start)
		}
		// A machine that does other things too can spoil a measurement, so one good one of several is enough.
		few, many := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
		for try := 0; try < 3 || try < 30 && many > 32*few; try++ {
			few, many = min(few, max(took(short), 100*time.Microsecond)), min(many, took(long))
		}
		if many > 32*few {
			t.Errorf("%s: %d times the text takes %d times as long (%v, %v)", c.expr, long/short, many/few, few, many)
		}
	}
}

// An expression that is exponential by itself gives up instead.
func TestGivesUpInBoundedTime(t *testing.T) {
	t.Parallel()
	p, err := Compile(`(?:(?:a|b|ab)+c?)+(?:(?:a|ab)+)+d`)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	p.All(strings.Repeat("ab", 10000), func(_, _ int) { t.Error("there is no match") })
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

// FuzzAll looks for expressions that panic or hang, and for matches that are not in order.
func FuzzAll(f *testing.F) {
	for _, expr := range []string{
		`'s| ?\p{L}+|\s+(?!\S)|\s+`, `(?i:k|\x{4f60})[^\s&&[^a-z]]++`, `(?>a+|b){2,3}?$`, `\b\W*?\z`, `a{0,3}{2}`, `[]-]`, `(?=a)|b*`,
	} {
		f.Add(expr, "The cat's \u4f60\u597d  123\n\xffkK")
	}
	f.Fuzz(func(t *testing.T, expr, text string) {
		p, err := Compile(expr)
		if err != nil {
			return
		}
		last := 0
		p.All(text, func(start, end int) {
			if start < last || end < start || end > len(text) {
				t.Fatalf("%q finds %d:%d after %d", expr, start, end, last)
			}
			last = end
		})
	})
}

func BenchmarkAll(b *testing.B) {
	p, err := Compile(`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`)
	if err != nil {
		b.Fatal(err)
	}
	text := strings.Repeat("The quick brown fox jumps over the lazy dog. \u4f60\u597d\uff0c\u4e16\u754c\uff0c\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002\n", 2000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		p.All(text, func(_, _ int) {})
	}
}
