package browsertest
import ("testing"; "time"; "testing/fstest"; "strings"; "os"; "io/fs"; "path/filepath"; "encoding/json"; "github.com/pagelight/pagelight/internal/builtin")
func TestZZ(t *testing.T) {
	b := Start(t, SwiftShader)
	f := site(t)
	exec := string(f["dist/wasm_exec.js"].Data)
	f["dist/wasm_exec.js"] = &fstest.MapFile{Data: []byte(exec + `
globalThis.gaps=[];
{const r=Go.prototype._resume; Go.prototype._resume=function(){const t=performance.now(); try{return r.call(this)}finally{const d=performance.now()-t; if(d>8) gaps.push([Math.round(t),Math.round(d), globalThis.lastMsg??""])}}}
`)}
	w := string(f["worker.js"].Data)
	w = strings.Replace(w, "const message = JSON.parse(text);", "const message = JSON.parse(text); globalThis.lastMsg=message.type+' '+(message.phase??'')+' '+(message.done??''); ", 1)
	w = strings.Replace(w, `if (type === "work") {`, `if (type === "gaps") { postMessage({type, id, gaps: JSON.stringify(gaps)}); return; }
 if (type === "work") {`, 1)
	f["worker.js"] = &fstest.MapFile{Data: []byte(w)}
	if os.Getenv("HW") != "" {
		g := string(f["gpu.js"].Data)
		i := strings.Index(g, "function isSoftware(info, adapter) {")
		g = g[:i] + "function isSoftware(info, adapter) { return false;" + g[i+len("function isSoftware(info, adapter) {"):]
		f["gpu.js"] = &fstest.MapFile{Data: []byte(g)}
	}
	_ = fs.ReadFile; _ = filepath.Join; addDir(t, f, "models/builtin", builtin.FS())
	c := b.NewClient(t, Serve(t, Mount{"/", f}))
	m := Message{"type": "load", "id": "l", "model": map[string]any{"kind": "bundle", "url": os.Getenv("URL")}, "options": map[string]any{"device": "gpu"}}
	if s := os.Getenv("SYN"); s != "" { m["model"] = map[string]any{"kind": "synthetic", "name": s}; m["options"] = map[string]any{"device": "gpu", "quant": "q4"} }
	start := time.Now()
	a := c.Ask(m, 9*time.Minute)
	t.Logf("%s %.300s", a.Type, a.Raw)
	t.Log(time.Since(start))
	g := c.Ask(Message{"type":"gaps","id":"g"}, time.Minute)
	var v struct{Gaps string}
	json.Unmarshal(g.Raw, &v)
	t.Log(v.Gaps)
}
