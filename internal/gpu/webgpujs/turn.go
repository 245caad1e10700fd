//go:build js && wasm

package webgpujs

import "syscall/js"

// Turn lets the browser's event loop run once: messages come in and results of the device are seen. Only a goroutine that waits
// makes the runtime go idle and return to the browser; runtime.Gosched does not. It must not be called inside a js.Func.
func Turn() {
	g := js.Global().Get("pagelightGPU")
	if g.Type() != js.TypeObject {
		return // no gpu.js, so no page that could wait
	}
	done := make(chan struct{})
	f := js.FuncOf(func(js.Value, []js.Value) any {
		close(done)
		return nil
	})
	defer f.Release()
	g.Call("turn", f)
	<-done
}
