// norm_linear: RMS norm, a linear layer and what follows it, in one kernel for few tokens on adapters where a dispatch costs more
// than the reading that it saves.
//
//   r[m]     = 1 / sqrt(mean(x[m]^2) + eps)             with NORM, else 1
//   z[m, j]  = r[m] * dot(x[m] * weight, w[j]) + bias[j]
//   y[m, y_offset+j] (+)= z[m, j]                       without GATED
//   y[m, j]  = silu(z[m, j]) * z[m, half+j]             with GATED, for j < half = N/2
//
// with X_SHARES sum over s of shares[m, s] is added to x[m], with Y_SHARES to y[m]. paged_attn_linear left them.
//
// LANES invocations share 4*FOURS rows of w, and all of a workgroup a row of x. r is a factor of the whole sum, so
// the norm needs no pass of its own.
//
// Shapes   M tokens, at most 4; N rows of w (one part of a matrix), K inputs, a multiple of 32
//   x       [M, K] f32            read
//   weight  [K] f32               read        of the norm; a dummy without NORM
//   w       [N, K] packed         read        as internal/quant/format.go says; the buffer is padded to 16 bytes
//   scales  [N, words] u32             read
//   bias    [y_stride] f32        read        a dummy without bias; with GATED [N]
//   shares  [M, X_SHARES, K] f32  read        or [M, Y_SHARES, y_stride]; a dummy without either
//   y       [M, y_stride] f32     read_write
// Grid     ceil(N / (4*FOURS*WG/LANES)) workgroups of WG over x and y, M in z.
// Traffic  reads w and scales M times, 4*M*K bytes of x, and of each share of it, for each workgroup (from cache), writes
//          4*M*N. Bound by latency for a layer of some MB, and by the memory that w takes for an LM head.
// Storage  144*LANES + 16*FOURS*WG + 4*WG bytes of workgroup memory, less in the variant.
// Numerics f32 sums, LANES partial ones a row.
// Needs    a lib_weight file, lib_norm_linear, lib_place and lib_row_sums, appended by wgsl.Source; formats that are read 32 at a time;
//          nothing beyond the portable subset. A variant has lib_place_subgroups and lib_row_sums_subgroups.
// Ref      internal/ref, NormLinear.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 64u;     // invocations per workgroup, a multiple of LANES
const LANES: u32 = 32u;  // invocations that share rows: 32, 64 or 96
const FOURS: u32 = 1u;   // fours of rows that they share: 1 or 2
const K: u32 = 1024u;    // inputs, as in Params
const N: u32 = 6144u;    // rows of this part, as in Params
const NORM: u32 = 1u;    // 1: x is normed
const GATED: u32 = 0u;   // 1: silu of the upper half of rows times the lower half
const X_SHARES: u32 = 0u; // shares that x lacks, at most 8
const Y_SHARES: u32 = 0u; // shares that y lacks, at most 8; not with X_SHARES

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
@group(0) @binding(7) var<storage, read> shares: array<vec4<f32>>;
@group(0) @binding(8) var<storage, read_write> y: array<f32>;

const HALF: u32 = N / 2u;

// x_share is vec4 t of share s of x, if there is one.
fn x_share(m: u32, s: u32, t: u32) -> vec4<f32> {
  if (s >= X_SHARES) {
    return vec4<f32>(0.0);
  }
  return shares[(m * X_SHARES + s) * (K / 4u) + t];
}

fn input(m: u32, t: u32) -> vec4<f32> {
  let v = x[m * (K / 4u) + t];
  if (X_SHARES == 0u) {
    return v;
  }
  let four = (x_share(m, 0u, t) + x_share(m, 1u, t)) + (x_share(m, 2u, t) + x_share(m, 3u, t));
  if (X_SHARES <= 4u) {
    return v + four;
  }
  return v + (four + ((x_share(m, 4u, t) + x_share(m, 5u, t)) + (x_share(m, 6u, t) + x_share(m, 7u, t))));
}

// y_share is element j of share s of y, if there is one.
fn y_share(m: u32, s: u32, j: u32) -> f32 {
  if (s >= Y_SHARES) {
    return 0.0;
  }
  let i = (m * Y_SHARES + s) * p.y_stride + j;
  return shares[i / 4u][i % 4u];
}

fn y_shares(m: u32, j: u32) -> f32 {
  let four = (y_share(m, 0u, j) + y_share(m, 1u, j)) + (y_share(m, 2u, j) + y_share(m, 3u, j));
  if (Y_SHARES <= 4u) {
    return four;
  }
  return four + ((y_share(m, 4u, j) + y_share(m, 5u, j)) + (y_share(m, 6u, j) + y_share(m, 7u, j)));
}

fn norm_weight(t: u32) -> vec4<f32> {
  return weight[t];
}

// rows_of is the rows of a four: neighbours, or with GATED two neighbours and what they gate. Invocations past the last row must
// still reach the barriers.
fn rows_of(four: u32) -> vec4<u32> {
  if (GATED == 1u) {
    let first = min(vec2<u32>(2u * four, 2u * four + 1u), vec2<u32>(max(HALF, 1u) - 1u));
    return vec4<u32>(first, first + vec2<u32>(HALF));
  }
  return min(vec4<u32>(4u * four) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(N - 1u));
}

fn bias_at(j: u32) -> f32 {
  if ((p.flags & 2u) == 0u) {
    return 0.0;
  }
  return bias[j];
}

// before is what output j of token m is added to.
fn before(m: u32, j: u32) -> f32 {
  if (j >= N) {
    return 0.0;
  }
  let column = p.y_offset + j;
  var v = bias_at(column);
  if ((p.flags & 1u) != 0u) {
    v += y[m * p.y_stride + column];
  }
  if (Y_SHARES > 0u) {
    v += y_shares(m, column);
  }
  return v;
}

fn put(m: u32, j: u32, v: f32) {
  if (j < N) {
    y[m * p.y_stride + p.y_offset + j] = v;
  }
}

fn put_gated(m: u32, j: u32, gate: f32, up: f32) {
  if (j >= HALF) {
    return;
  }
  let g = gate + bias_at(j);
  y[m * p.y_stride + j] = g / (1.0 + exp(-g)) * (up + bias_at(HALF + j));
}

// row computes what this workgroup has of token m.
fn row(m: u32, first: u32, held: Held, tid: u32, lane: u32, me: Place) {
  let four = first + lane;
  // What the sums are added to is read while they are made.
  var old = vec4<f32>(0.0);
  if (GATED == 0u && lane < FOURS) {
    old = vec4<f32>(before(m, 4u * four), before(m, 4u * four + 1u), before(m, 4u * four + 2u), before(m, 4u * four + 3u));
  }
  let z = sum_row(m, first, held, tid, lane, me);
  if (lane < FOURS) {
    if (GATED == 1u) {
      put_gated(m, 2u * four, z.x, z.z);
      put_gated(m, 2u * four + 1u, z.y, z.w);
    } else {
      put(m, 4u * four, z.x + old.x);
      put(m, 4u * four + 1u, z.y + old.y);
      put(m, 4u * four + 2u, z.z + old.z);
      put(m, 4u * four + 3u, z.w + old.w);
    }
  }
}

@compute @workgroup_size(WG)
fn norm_linear(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
               me: Place) {
  let tid = index_of(me);
  let lane = tid % LANES;
  let first = ((wg.y * nwg.x + wg.x) * (WG / LANES) + tid / LANES) * FOURS;
  let held = hold(first, 0u, lane);
  let m = wg.z;
  if (m < step.rows) { // the same for the whole workgroup
    row(m, first, held, tid, lane, me);
  }
}
