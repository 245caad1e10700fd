//go:build !js

package engine

const wasm = false
