// matmul_serial: a linear layer without barriers, for software adapters: one invocation computes some rows for some tokens.
//
//   y[m, y_offset+j] (+)= dot(x[m], w[j]) + bias[y_offset+j]
//
// Shapes   M tokens, N rows of w (one part of a matrix), K inputs
//   x       [M, x_stride] f32     read
//   w       [N, K] packed         read        as internal/quant/format.go says; the buffer is padded to 16 bytes
//   scales  [N, S] u32            read        S words a row likewise; a dummy for f32, f16 and bf16
//   bias    [y_stride] f32        read        a dummy without bias
//   y       [M, y_stride] f32     read_write
// Grid     ceil(N / (4*FOURS*WG)) workgroups of WG over x and y, ceil(M/TOKENS) in z.
// Traffic  reads w and scales ceil(M/TOKENS) times and 4*M*K bytes of x, writes 4*M*N.
// Storage  no workgroup memory.
// Numerics f32 sums in the order of K; scales that a lib_weight file leaves to the end multiply sums, not weights.
// Needs    a lib_weight file, lib_matmul_serial and lib_serial_rows, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, Matmul.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 8u;     // invocations per workgroup
const TOKENS: u32 = 1u; // tokens per invocation: 1, 4 or 8
const FOURS: u32 = 2u;  // rows per invocation, in fours: 2 or 4
const WIDE: u32 = 0u;   // 1: 32 weights at a time, which have one weight_scale

struct Params {
  k: u32,        // K, elements, a multiple of 8
  n: u32,        // N, rows of this part
  x_stride: u32, // elements of a row of x, a multiple of 4
  y_stride: u32, // elements of a row of y
  y_offset: u32, // column of y that belongs to row 0 of w
  flags: u32,    // bit 0: add to y, bit 1: there is a bias
  pad0: u32,
  pad1: u32,
}

struct Step {
  rows: u32, // M, the tokens that this step really has
  pad0: u32,
  pad1: u32,
  pad2: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> scales: array<u32>;
@group(0) @binding(5) var<storage, read> bias: array<f32>;
@group(0) @binding(6) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WG)
fn matmul_serial(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
                 @builtin(local_invocation_index) tid: u32) {
  let j = 4u * FOURS * ((wg.y * nwg.x + wg.x) * WG + tid);
  multiply(TOKENS * wg.z, j, 0u, p.x_stride);
}
