//go:build js && wasm

// Command faulty stands in for the engine in tests of worker.js: it answers a ping, and goes wrong when asked to.
package main

import (
	"fmt"
	"os"
	"strings"
	"syscall/js"
)

func main() {
	messages := make(chan string, 100)
	bridge := js.Global().Get("pagelightBridge")
	bridge.Call("start", js.FuncOf(func(_ js.Value, args []js.Value) any {
		messages <- args[0].String()
		return nil
	}))
	for m := range messages {
		switch {
		case strings.Contains(m, `"panic"`):
			panic("the kettle is empty")
		case strings.Contains(m, `"exit"`):
			fmt.Fprintln(os.Stderr, "no tea today")
			os.Exit(7)
		case strings.Contains(m, `"memory"`):
			var keep [][]byte
			for {
				keep = append(keep, make([]byte, 256<<20))
			}
		case strings.Contains(m, `"hang"`):
			for { //nolint:staticcheck // that it spins is the point
			}
		default:
			bridge.Call("send", `{"type":"pong","id":"ping"}`)
		}
	}
}
