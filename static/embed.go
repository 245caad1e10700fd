// Package static is the page: HTML, style, ES modules and, after a build, the engine as WASM. It has no build step of its
// own, and every address in it is relative, so it works below any path of any file host.
package static

import (
	"embed"
	"io/fs"
)

//go:embed index.html bench.html style.css bench.css favicon.svg *.js js vendor all:dist
var files embed.FS

// FS gives the files of the page. dist/ holds only .gitkeep until the engine was built.
func FS() fs.FS { return files }
