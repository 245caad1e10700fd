package e2e

import (
	_ "embed"
	"fmt"
	"time"

	"github.com/pagelight/pagelight/internal/browsertest"
)

//go:embed testdata/axe.min.js
var axeSource string

// looks are the ways in which the page is looked at.
var looks = []struct{ theme, lang string }{{"light", "en"}, {"dark", "en"}, {"dark", "zh-CN"}, {"light", "zh-CN"}}

// look changes theme and language with the page's own buttons.
func (p *page) look(theme, lang string) {
	p.t.Helper()
	eval[bool](p, fmt.Sprintf(`(() => {
		const root = document.documentElement;
		for (let i = 0; i < 3 && root.dataset.theme !== %q; i++) document.querySelector("#theme").click();
		if (root.lang !== %q) document.querySelector("#lang").click();
		return root.dataset.theme === %[1]q && root.lang === %[2]q;
	})() || (() => { throw new Error("the page does not change its look"); })()`, theme, lang))
}

// accessible fails when axe-core finds fault with what the page shows now, in any look.
func (p *page) accessible(what string) {
	p.t.Helper()
	if !eval[bool](p, `"axe" in window`) {
		eval[bool](p, axeSource+"\n;true")
	}
	started := time.Now()
	for _, l := range looks {
		p.look(l.theme, l.lang)
		found := browsertest.Eval[[]string](p.t, p.Tab, time.Minute, `new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)))
			.then(() => axe.run(document, { resultTypes: ["violations"] }))
			.then(({ violations, passes }) => {
				if (passes.length < 10) throw new Error("axe looked at nothing");
				return violations.flatMap((v) => v.nodes.map((node) => v.id + " (" + v.impact + "): " + node.html.slice(0, 200) + " | " + node.failureSummary));
			})`)
		for _, text := range found {
			p.t.Errorf("%s, %s, %s: %s", what, l.theme, l.lang, text)
		}
	}
	p.t.Logf("axe looked at %s in %d looks in %v", what, len(looks), time.Since(started).Round(time.Millisecond))
	p.look("light", "en")
	// What a change of language makes again is there in the next frame.
	browsertest.Eval[bool](p.t, p.Tab, time.Minute, `new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(() => next(true))))`)
}

// checkerWorks makes sure that the checker finds a fault where there is one.
func (p *page) checkerWorks() {
	p.t.Helper()
	eval[bool](p, axeSource+"\n;true")
	found := browsertest.Eval[[]string](p.t, p.Tab, time.Minute, `(async () => {
		const bad = document.createElement("button");
		document.querySelector("main").append(bad);
		const { violations } = await axe.run(document);
		bad.remove();
		return violations.map((v) => v.id);
	})()`)
	if len(found) != 1 || found[0] != "button-name" {
		p.t.Errorf("axe finds %q in a page with a button that has no name", found)
	}
}
