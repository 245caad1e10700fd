package engine

const wasm = true // 32-bit memory: budgets are smaller
