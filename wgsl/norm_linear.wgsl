// norm_linear: RMS norm, a linear layer and what follows it, in one kernel for few tokens on adapters where a dispatch costs more
// than the reading that it saves.
//
//   r[m]     = 1 / sqrt(mean(x[m]^2) + eps)             with NORM, else 1
//   z[m, j]  = r[m] * dot(x[m] * weight, w[j]) + bias[j]
//   y[m, y_offset+j] (+)= z[m, j]                       without GATED
//   y[m, j]  = silu(z[m, j]) * z[m, half+j]             with GATED, for j < half = N/2
//
// LANES invocations share four rows of w and stride over K, 32 elements at a time: what they read of x serves four rows. r is
// a factor of the whole sum, so the norm needs no pass of its own.
//
// Shapes   M tokens, N rows of w (one part of a matrix), K inputs, a multiple of 32
//   x       [M, K] f32            read
//   weight  [K] f32               read        of the norm; a dummy without NORM
//   w       [N, K] packed         read        as internal/quant/format.go says; the buffer is padded to 16 bytes
//   scales  [N, words] u32             read
//   bias    [y_stride] f32        read        a dummy without bias; with GATED [N]
//   y       [M, y_stride] f32     read_write
// Grid     ceil(N/4 / (WG/LANES)) workgroups of WG over x and y, M in z.
// Traffic  reads w and scales M times, 4*K bytes of x for each workgroup (from cache), writes 4*M*N.
//          Bound by latency for a layer of some MB, and by the memory that w takes for an LM head.
// Storage  20*WG bytes of workgroup memory.
// Numerics f32 sums, LANES partial ones a row.
// Needs    a lib_weight file and lib_norm_linear, appended by wgsl.Source; formats that are read 32 at a time; nothing beyond the portable subset.
// Ref      internal/ref, NormLinear.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 128u;   // invocations per workgroup, a multiple of LANES
const LANES: u32 = 32u; // invocations that share rows
const NORM: u32 = 1u;   // 1: x is normed
const GATED: u32 = 0u;  // 1: silu of the upper half of rows times the lower half

struct Params {
  k: u32,        // K, elements, a multiple of 32
  n: u32,        // N, rows of this part
  y_stride: u32, // elements of a row of y
  y_offset: u32, // column of y that belongs to row 0 of w
  flags: u32,    // bit 0: add to y, bit 1: there is a bias
  eps: f32,      // added to the mean square
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
@group(0) @binding(3) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read> scales: array<u32>;
@group(0) @binding(6) var<storage, read> bias: array<f32>;
@group(0) @binding(7) var<storage, read_write> y: array<f32>;

fn bias_at(j: u32) -> f32 {
  if ((p.flags & 2u) == 0u) {
    return 0.0;
  }
  return bias[j];
}

fn put(m: u32, j: u32, sum: f32) {
  if (j >= p.n) {
    return;
  }
  let column = p.y_offset + j;
  let at = m * p.y_stride + column;
  var v = sum + bias_at(column);
  if ((p.flags & 1u) != 0u) {
    v += y[at];
  }
  y[at] = v;
}

fn put_gated(m: u32, j: u32, gate: f32, up: f32) {
  let half = p.n / 2u;
  if (j >= half) {
    return;
  }
  let g = gate + bias_at(j);
  y[m * p.y_stride + j] = g / (1.0 + exp(-g)) * (up + bias_at(half + j));
}

@compute @workgroup_size(WG)
fn norm_linear(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
               @builtin(local_invocation_index) tid: u32) {
  let m = wg.z;
  if (m >= step.rows) { // the same for the whole workgroup
    return;
  }
  let lane = tid % LANES;
  let four = (wg.y * nwg.x + wg.x) * (WG / LANES) + tid / LANES;
  // Invocations past the last row must still reach the barriers.
  var rows = min(vec4<u32>(4u * four) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.n - 1u));
  if (GATED == 1u) {
    let half = p.n / 2u;
    let first = min(vec2<u32>(2u * four, 2u * four + 1u), vec2<u32>(half - 1u));
    rows = vec4<u32>(first, first + vec2<u32>(half));
  }
  let found = dot_four(rows, m * (p.k / 4u), lane);
  let all = sum_lanes(found, tid, lane);
  if (lane != 0u) {
    return;
  }
  var z = all.sum;
  if (NORM == 1u) {
    z *= inverseSqrt(all.square / f32(p.k) + p.eps);
  }
  if (GATED == 1u) {
    put_gated(m, 2u * four, z.x, z.z);
    put_gated(m, 2u * four + 1u, z.y, z.w);
    return;
  }
  put(m, 4u * four, z.x);
  put(m, 4u * four + 1u, z.y);
  put(m, 4u * four + 2u, z.z);
  put(m, 4u * four + 3u, z.w);
}
