// moe_serial: a linear layer of the experts that each token was sent to, without barriers, for software adapters: one invocation
// computes eight rows for TILE pairs.
//
//   y[m, y_offset + s*N + j] = dot(x[m, s*x_slot ..], w[e, j])   for the pairs m*slots + s of the experts e in groups
//
// With TILE = 1 groups is what moe_route chose: a tile is a pair, and has its number. Sums have the same order for both.
//
// Shapes   M tokens, N rows and K inputs of an expert; w is one part of the matrix, some experts
//   x       [M, x_stride] f32         read
//   groups  [tiles*(1+TILE)] u32      read   tiles of pairs by expert, see moe_group
//   w       [experts*N, K] packed     read   as internal/quant/format.go says; the buffer is padded to 16 bytes
//   scales  [experts*N, S] u32        read   S words a row likewise; a dummy for f32, f16 and bf16
//   y       [M, y_stride] f32         write
// Grid     ceil(N / (8*WG)) workgroups of WG over x and y, tiles in z. Those of tiles that are empty, or of experts that are not in
//          w, return.
// Traffic  reads an expert's rows of w and scales once for each of its tiles, writes 4*M*slots*N.
// Storage  no workgroup memory.
// Numerics f32 sums in the order of K; scales that a lib_weight file leaves to the end multiply sums, not weights.
// Needs    a lib_weight file and lib_serial_rows, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, Experts.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 8u;   // invocations per workgroup
const TILE: u32 = 1u; // pairs per invocation: 1 or 4
const WIDE: u32 = 0u; // 1: 32 weights at a time; K is a multiple of 32, and so is GROUP

const NONE: u32 = 0xFFFFFFFFu;

struct Params {
  k: u32,        // K, elements, a multiple of 8
  n: u32,        // N, rows of an expert
  slots: u32,    // experts that a token is sent to
  tiles: u32,    // tiles that groups has room for
  x_stride: u32, // elements of a row of x, a multiple of 4
  x_slot: u32,   // elements from the inputs of one slot to those of the next: 0 where all read the same
  y_stride: u32, // elements of a row of y
  y_offset: u32, // column of y that belongs to row 0 of slot 0
  expert0: u32,  // first expert of this part of w
  experts: u32,  // experts of this part
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
@group(0) @binding(3) var<storage, read> groups: array<u32>;
@group(0) @binding(4) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read> scales: array<u32>;
@group(0) @binding(6) var<storage, read_write> y: array<f32>;

// inputs is where the inputs of a pair begin, in vectors.
fn inputs(pair: u32) -> u32 {
  let m = pair / p.slots;
  return (m * p.x_stride + (pair - m * p.slots) * p.x_slot) / 4u;
}

fn put(at: u32, j: u32, sum: f32) {
  if (j < p.n) {
    y[at + j] = sum;
  }
}

// put_pair writes the rows from j on of one pair.
fn put_pair(pair: u32, j: u32, s0: vec4<f32>, s1: vec4<f32>) {
  if (pair == NONE) {
    return;
  }
  let m = pair / p.slots;
  let at = m * p.y_stride + p.y_offset + (pair - m * p.slots) * p.n;
  put(at, j, s0.x);
  put(at, j + 1u, s0.y);
  put(at, j + 2u, s0.z);
  put(at, j + 3u, s0.w);
  put(at, j + 4u, s1.x);
  put(at, j + 5u, s1.y);
  put(at, j + 6u, s1.z);
  put(at, j + 7u, s1.w);
}

@compute @workgroup_size(WG)
fn moe_serial(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
              @builtin(local_invocation_index) tid: u32) {
  let j = 8u * ((wg.y * nwg.x + wg.x) * WG + tid);
  if (j >= p.n || (TILE == 1u && wg.z >= step.rows * p.slots)) {
    return;
  }
  let expert = groups[wg.z] - p.expert0; // wraps to a large number for those before
  if (groups[wg.z] == NONE || expert >= p.experts) {
    return;
  }
  var pair = vec4<u32>(wg.z, NONE, NONE, NONE);
  if (TILE > 1u) {
    let at = p.tiles + wg.z * TILE;
    pair = vec4<u32>(groups[at], groups[at + 1u], groups[at + 2u], groups[at + 3u]);
  }
  // Places without a pair repeat the first one, and are not written.
  let xs = select(pair, vec4<u32>(pair.x), pair == vec4<u32>(NONE));
  let xa = inputs(xs.x);
  let xb = inputs(xs.y);
  let xc = inputs(xs.z);
  let xd = inputs(xs.w);
  let vecs = select(2u, 8u, WIDE == 1u); // of a token in a round
  let rounds = p.k / (4u * vecs);
  let first = expert * p.n * rounds;
  let j0 = row_starts(j, rounds) + first;
  let j1 = row_starts(j + 4u, rounds) + first;

  var a0 = vec4<f32>(0.0); // first pair, rows j..j+3
  var a1 = vec4<f32>(0.0); // first pair, rows j+4..j+7
  var b0 = vec4<f32>(0.0); // second pair, and so on
  var b1 = vec4<f32>(0.0);
  var c0 = vec4<f32>(0.0);
  var c1 = vec4<f32>(0.0);
  var d0 = vec4<f32>(0.0);
  var d1 = vec4<f32>(0.0);
  for (var i = 0u; i < rounds; i += 1u) {
    let at = vecs * i;
    let va = load_x(xa + at);
    var vb: Quad;
    var vc: Quad;
    var vd: Quad;
    if (TILE > 1u) {
      vb = load_x(xb + at);
      vc = load_x(xc + at);
      vd = load_x(xd + at);
    }
    let r0 = load_rows(j0 + i);
    a0 += products(r0, va);
    if (TILE > 1u) {
      b0 += products(r0, vb);
      c0 += products(r0, vc);
      d0 += products(r0, vd);
    }
    let r1 = load_rows(j1 + i);
    a1 += products(r1, va);
    if (TILE > 1u) {
      b1 += products(r1, vb);
      c1 += products(r1, vc);
      d1 += products(r1, vd);
    }
  }
  put_pair(pair.x, j, a0, a1);
  if (TILE > 1u) {
    put_pair(pair.y, j, b0, b1);
    put_pair(pair.z, j, c0, c1);
    put_pair(pair.w, j, d0, d1);
  }
}
