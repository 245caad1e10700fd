// attn_linear: combines the partitions of paged_attn_few, and a linear layer with a residual connection, in one kernel for few tokens.
//
//   x[m,h]  = sum_i exp(largest_i - largest) * sums_i / sum_i exp(largest_i - largest) * total_i
//   y[m, y_offset+j] += dot(x[m], w[j])
//
// Every workgroup combines everything anew, which pays for as few partitions as PARTS. LANES invocations share 4*FOURS rows of w.
//
// Shapes   M tokens, at most 4; N rows of w (one part of a matrix), K = H*D inputs, a multiple of 32, H heads of D = HEAD_DIM
//   tokens   [4] vec4<u32>               read        (id, position, slot, sequence)
//   partial  [M, H, PARTS, D+4] f32      read        D sums, the largest score, the sum of exponentials, two unused
//   w        [N, K] packed               read        as internal/quant/format.go says; the buffer is padded to 16 bytes
//   scales   [N, words] u32                    read
//   y        [M, y_stride] f32           read_write
// Grid     ceil(N / (4*FOURS*WG/LANES)) workgroups of WG over x and y, M in z.
// Traffic  reads w and scales M times, 4*M*H*PARTS*(D+4) bytes for each workgroup (from cache),
//          writes 4*M*N. Bound by latency.
// Storage  144*LANES + 16*FOURS*WG + 4*WG bytes of workgroup memory, less in the variant.
// Numerics f32 sums, LANES partial ones a row.
// Needs    a lib_weight file, lib_norm_linear, lib_place and lib_row_sums, appended by wgsl.Source; formats that are read 32 at a time;
//          nothing beyond the portable subset. A variant has lib_place_subgroups and lib_row_sums_subgroups.
// Ref      internal/ref, AttnLinear.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 64u;        // invocations per workgroup, a multiple of LANES
const LANES: u32 = 64u;     // invocations that share rows: 32, 64 or 96
const FOURS: u32 = 1u;      // fours of rows that they share: 1 or 2
const K: u32 = 2048u;       // inputs, as in Params
const N: u32 = 1024u;       // rows of this part, as in Params
const HEAD_DIM: u32 = 128u; // D, a multiple of 16
const PARTS: u32 = 4u;      // partitions of a context, at most 4
const PART: u32 = 64u;      // tokens per partition
const NORM: u32 = 0u;       // always

struct Params {
  k: u32,        // K, elements, a multiple of 32
  n: u32,        // N, rows of this part
  y_stride: u32, // elements of a row of y
  y_offset: u32, // column of y that belongs to row 0 of w
  heads: u32,    // H
  eps: f32,      // of no use here
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
@group(0) @binding(2) var<uniform> tokens: array<vec4<u32>, 4>;
@group(0) @binding(3) var<storage, read> partial: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read> scales: array<u32>;
@group(0) @binding(6) var<storage, read_write> y: array<f32>;

const VECS: u32 = HEAD_DIM / 4u;
const EACH: u32 = VECS + 1u; // vec4 of a partition
const HEADS: u32 = K / HEAD_DIM;

// used is how many partitions the context of token m has.
fn used(m: u32) -> u32 {
  return min(tokens[m].y / PART + 1u, PARTS);
}

// mix_four combines the count partitions from at on, four at most; d is the vec4 of the sums.
fn mix_four(at: u32, d: u32, count: u32) -> vec4<f32> {
  let last = count - 1u;
  let a1 = at + min(1u, last) * EACH;
  let a2 = at + min(2u, last) * EACH;
  let a3 = at + min(3u, last) * EACH;
  let s0 = partial[at + d];
  let s1 = partial[a1 + d];
  let s2 = partial[a2 + d];
  let s3 = partial[a3 + d];
  let t0 = partial[at + VECS];
  let t1 = partial[a1 + VECS];
  let t2 = partial[a2 + VECS];
  let t3 = partial[a3 + VECS];
  let scores = vec4<f32>(t0.x, t1.x, t2.x, t3.x);
  let largest = max(max(scores.x, scores.y), max(scores.z, scores.w));
  let e = select(vec4<f32>(0.0), exp(scores - vec4<f32>(largest)), vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(count));
  let sum = (e.x * s0 + e.y * s1) + (e.z * s2 + e.w * s3);
  return sum / dot(e, vec4<f32>(t0.y, t1.y, t2.y, t3.y));
}

fn input(m: u32, t: u32) -> vec4<f32> {
  let h = t / VECS;
  let d = t % VECS;
  let at = (m * HEADS + h) * PARTS * EACH;
  let count = used(m);
  if (count == 1u) {
    return partial[at + d] / partial[at + VECS].y;
  }
  return mix_four(at, d, count);
}

// norm_weight is that of a norm, which there is not.
fn norm_weight(t: u32) -> vec4<f32> {
  return vec4<f32>(1.0);
}

fn rows_of(four: u32) -> vec4<u32> {
  // Invocations past the last row must still reach the barriers.
  return min(vec4<u32>(4u * four) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(N - 1u));
}

fn before(m: u32, j: u32) -> f32 {
  if (j >= N) {
    return 0.0;
  }
  return y[m * p.y_stride + p.y_offset + j];
}

fn put(m: u32, j: u32, v: f32) {
  if (j < N) {
    y[m * p.y_stride + p.y_offset + j] = v;
  }
}

// row computes what this workgroup has of token m.
fn row(m: u32, first: u32, held: Held, tid: u32, lane: u32, me: Place) {
  let four = first + lane;
  // What the sums are added to is read while they are made.
  var old = vec4<f32>(0.0);
  if (lane < FOURS) {
    old = vec4<f32>(before(m, 4u * four), before(m, 4u * four + 1u), before(m, 4u * four + 2u), before(m, 4u * four + 3u));
  }
  let z = sum_row(m, first, held, tid, lane, me);
  if (lane < FOURS) {
    put(m, 4u * four, z.x + old.x);
    put(m, 4u * four + 1u, z.y + old.y);
    put(m, 4u * four + 2u, z.z + old.z);
    put(m, 4u * four + 3u, z.w + old.w);
  }
}

@compute @workgroup_size(WG)
fn attn_linear(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
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
