// Package webgpujs runs kernels on the browser's WebGPU. Its JavaScript half is static/gpu.js, which keeps the WebGPU objects
// and is loaded before the program: Go holds numbers, and a step is one call that replays a recorded program.
//
// It knows no model and no protocol. Everything but this file and the errors builds for js/wasm only.
package webgpujs
