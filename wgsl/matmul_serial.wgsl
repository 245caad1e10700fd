// matmul_serial: matmul without barriers, for software adapters: one invocation computes two rows for four tokens.
//
//   y[m, y_offset+j] (+)= dot(x[m], w[j]) + bias[y_offset+j]
//
// Weights are decoded once for four tokens, and activations loaded once for two rows.
//
// Shapes   M tokens, N rows of w (one part of a matrix), K inputs
//   x       [M, x_stride] f32     read
//   w       [N, K] packed         read        as internal/quant/format.go says; the buffer is padded to 16 bytes
//   scales  [N, K/GROUP] u32      read        f16 scale and f16 zero; a dummy for f32, f16 and bf16
//   bias    [y_stride] f32        read        a dummy without bias
//   y       [M, y_stride] f32     read_write
// Grid     ceil(N / (2*WG)) workgroups of WG over x and y, ceil(M/4) in z.
// Traffic  reads w and scales ceil(M/4) times and 4*M*K bytes of x, writes 4*M*N.
// Storage  no workgroup memory.
// Numerics f32 sums in the order of K; codes are exact, scale * (code - zero) is never rounded by itself.
// Needs    a lib_weight file and lib_dot, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, Matmul.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 32u; // invocations per workgroup

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

fn put(m: u32, j: u32, sum: f32) {
  if (m >= step.rows) {
    return;
  }
  let column = p.y_offset + j;
  let at = m * p.y_stride + column;
  var v = sum;
  if ((p.flags & 2u) != 0u) {
    v += bias[column];
  }
  if ((p.flags & 1u) != 0u) {
    v += y[at];
  }
  y[at] = v;
}

@compute @workgroup_size(WG)
fn matmul_serial(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
                 @builtin(local_invocation_index) tid: u32) {
  let m = 4u * wg.z;
  let j = 2u * ((wg.y * nwg.x + wg.x) * WG + tid);
  if (m >= step.rows || j >= p.n) {
    return;
  }
  // Tokens past the last one repeat it, and so does the row past the last one; neither is written.
  let last = step.rows - 1u;
  let x0 = m * p.x_stride / 4u;
  let x1 = min(m + 1u, last) * p.x_stride / 4u;
  let x2 = min(m + 2u, last) * p.x_stride / 4u;
  let x3 = min(m + 3u, last) * p.x_stride / 4u;
  let octets = p.k / 8u;
  let o0 = j * octets;
  let o1 = min(j + 1u, p.n - 1u) * octets;

  var acc0 = vec4<f32>(0.0); // row j, one sum for each token
  var acc1 = vec4<f32>(0.0); // row j+1
  for (var i = 0u; i < octets; i += 1u) {
    let s0 = weight_scale(o0 + i);
    let s1 = weight_scale(o1 + i);
    let q0 = weight_octet(o0 + i, s0.y);
    let q1 = weight_octet(o1 + i, s1.y);
    let d0 = dot_pair(q0, q1, x0 + 2u * i);
    let d1 = dot_pair(q0, q1, x1 + 2u * i);
    let d2 = dot_pair(q0, q1, x2 + 2u * i);
    let d3 = dot_pair(q0, q1, x3 + 2u * i);
    acc0 += s0.x * vec4<f32>(d0.x, d1.x, d2.x, d3.x);
    acc1 += s1.x * vec4<f32>(d0.y, d1.y, d2.y, d3.y);
  }
  put(m, j, acc0.x);
  put(m + 1u, j, acc0.y);
  put(m + 2u, j, acc0.z);
  put(m + 3u, j, acc0.w);
  if (j + 1u < p.n) {
    put(m, j + 1u, acc1.x);
    put(m + 1u, j + 1u, acc1.y);
    put(m + 2u, j + 1u, acc1.z);
    put(m + 3u, j + 1u, acc1.w);
  }
}
