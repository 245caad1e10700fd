// matmul_uniform: matmul_serial that reads its inputs as a uniform, of 64 KiB at most.
//
//   y[m, y_offset+j] (+)= dot(x[m], w[j]) + bias[y_offset+j]
//
// Invocations side by side all read the same element of x. llvmpipe loads it once from a uniform, but once for each of them from
// storage, which takes as long as all the rest. A dispatch computes some of a step's tokens, whose inputs the binding shows.
//
// Shapes   M tokens, N rows of w (one part of a matrix), K inputs
//   x       [X_VECS] vec4<f32>    uniform     tokens x_row0, x_row0+1, .., one after the other
//   w       [N, K] packed         read        as internal/quant/format.go says; the buffer is padded to 16 bytes
//   scales  [N, S] u32            read        S words a row likewise; a dummy for f32, f16 and bf16
//   bias    [y_stride] f32        read        a dummy without bias
//   y       [M, y_stride] f32     read_write
// Grid     ceil(N / (4*FOURS*WG)) workgroups of WG over x and y, in z one for each TOKENS tokens from row0 on.
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
  rows: u32,     // tokens of this dispatch
  y_stride: u32, // elements of a row of y
  y_offset: u32, // column of y that belongs to row 0 of w
  flags: u32,    // bit 0: add to y, bit 1: there is a bias
  row0: u32,     // first token of this dispatch
  x_row0: u32,   // token that x begins with
}

struct Step {
  rows: u32, // M, the tokens that this step really has
  pad0: u32,
  pad1: u32,
  pad2: u32,
}

const X_VECS: u32 = 4096u; // vectors that x shows: 64 KiB, which every device can bind as a uniform

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<uniform> x: array<vec4<f32>, X_VECS>;
@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> scales: array<u32>;
@group(0) @binding(5) var<storage, read> bias: array<f32>;
@group(0) @binding(6) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WG)
fn matmul_uniform(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
                  @builtin(local_invocation_index) tid: u32) {
  let j = 4u * FOURS * ((wg.y * nwg.x + wg.x) * WG + tid);
  if (TOKENS * wg.z < p.rows) {
    multiply(p.row0 + TOKENS * wg.z, j, p.x_row0, p.k);
  }
}
