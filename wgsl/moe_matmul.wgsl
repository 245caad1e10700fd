// moe_matmul: a linear layer of the experts that each token was sent to, for many tokens, by tiles in workgroup memory.
//
//   y[m, y_offset + s*N + j] = dot(x[m, s*x_slot ..], w[e, j])   for the pairs m*slots + s of the experts e in groups
//
// One workgroup computes TILE pairs of one expert times ROWS of its rows, one invocation 2 x 4 of them: pairs ty + 16*i and rows
// tx + 16*j. The tiles in workgroup memory are laid out as those of matmul are.
//
// Shapes   M tokens, N rows and K inputs of an expert; w is one part of the matrix, some experts
//   x       [M, x_stride] f32         read
//   groups  [tiles*(1+TILE)] u32      read   tiles of pairs by expert, see moe_group
//   w       [experts*N, K] packed     read   as internal/quant/format.go says; the buffer is padded to 16 bytes
//   scales  [experts*N, S] u32        read   S words a row likewise; a dummy for f32, f16 and bf16
//   y       [M, y_stride] f32         write
// Grid     (ceil(N/64), tiles, 1) workgroups of 256. Those of tiles that are empty, or of experts that are not in w, return.
// Traffic  reads an expert's rows of w and scales once for each of its tiles, and x ceil(N/64) times, writes 4*M*slots*N.
// Storage  12,416 bytes of workgroup memory.
// Numerics f32 sums in the order of K; weights are rounded as those of Decode of internal/quant.
// Needs    a lib_weight file, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, Experts.

// No tuning: the tile and the workgroup belong together.
const WG: u32 = 256u;
const TILE: u32 = 32u;     // pairs per workgroup
const ROWS: u32 = 64u;     // rows of w per workgroup
const TILE_K: u32 = 32u;   // elements of K in workgroup memory at a time
const VECS: u32 = 8u;      // TILE_K / 4, vectors of a tile line
const X_VECS: u32 = 256u;  // TILE * VECS
const W_VECS: u32 = 512u;  // ROWS * VECS
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

var<workgroup> tile_x: array<vec4<f32>, X_VECS>;
var<workgroup> tile_w: array<vec4<f32>, W_VECS>;
var<workgroup> pairs: array<u32, TILE>;

fn put(pair: u32, j: u32, sum: f32) {
  if (pair == NONE || j >= p.n) {
    return;
  }
  let m = pair / p.slots;
  y[m * p.y_stride + p.y_offset + (pair - m * p.slots) * p.n + j] = sum;
}

// put4 writes the four results of one pair.
fn put4(pair: u32, j: u32, sum: vec4<f32>) {
  put(pair, j, sum.x);
  put(pair, j + 16u, sum.y);
  put(pair, j + 32u, sum.z);
  put(pair, j + 48u, sum.w);
}

// place is where vector c of tile line r lies.
fn place(r: u32, c: u32) -> u32 {
  return r * VECS + (c ^ (r & 7u));
}

@compute @workgroup_size(WG)
fn moe_matmul(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) tid: u32) {
  let expert = groups[wg.y] - p.expert0; // wraps to a large number for those before
  if (groups[wg.y] == NONE || expert >= p.experts) { // the same for the whole workgroup
    return;
  }
  let j0 = wg.x * ROWS;
  let tx = tid % 16u;
  let ty = tid / 16u;
  let octets = p.k / 8u;
  if (tid < TILE) {
    pairs[tid] = groups[p.tiles + wg.y * TILE + tid];
  }
  workgroupBarrier(); // pairs are complete

  // What this invocation loads: octet load_c of line load_r of w, and vector x_c of line x_r of x. Lines without a pair repeat
  // the first one, and are not written.
  let load_r = tid / 4u;
  let load_c = tid % 4u;
  let w_octet = (expert * p.n + min(j0 + load_r, p.n - 1u)) * octets;
  let at0 = place(load_r, 2u * load_c);
  let at1 = place(load_r, 2u * load_c + 1u);
  let x_r = tid / VECS;
  let x_c = tid % VECS;
  let pair = select(pairs[x_r], pairs[0], pairs[x_r] == NONE);
  let m = pair / p.slots;
  let x_vec = (m * p.x_stride + (pair - m * p.slots) * p.x_slot) / 4u;
  let x_at = place(x_r, x_c);

  var acc0 = vec4<f32>(0.0);
  var acc1 = vec4<f32>(0.0);
  for (var k0 = 0u; k0 < p.k; k0 += TILE_K) {
    let c = k0 / 8u + load_c;
    if (c < octets) {
      let s = weight_scale(w_octet + c);
      let q = weight_octet(w_octet + c, s.y);
      tile_w[at0] = s.x * q.a;
      tile_w[at1] = s.x * q.b;
    } else { // past the end of K
      tile_w[at0] = vec4<f32>(0.0);
      tile_w[at1] = vec4<f32>(0.0);
    }
    if (k0 / 4u + x_c < 2u * octets) {
      tile_x[x_at] = x[x_vec + k0 / 4u + x_c];
    } else {
      tile_x[x_at] = vec4<f32>(0.0);
    }
    workgroupBarrier(); // both tiles are complete before any invocation reads them
    for (var v = 0u; v < VECS; v += 1u) {
      // tx + 16*i and tx agree modulo 8, so one place serves lines 16 apart.
      let pw = place(tx, v);
      let px = place(ty, v);
      let w0 = tile_w[pw];
      let w1 = tile_w[pw + 16u * VECS];
      let w2 = tile_w[pw + 32u * VECS];
      let w3 = tile_w[pw + 48u * VECS];
      let v0 = tile_x[px];
      let v1 = tile_x[px + 16u * VECS];
      acc0 += vec4<f32>(dot(v0, w0), dot(v0, w1), dot(v0, w2), dot(v0, w3));
      acc1 += vec4<f32>(dot(v1, w0), dot(v1, w1), dot(v1, w2), dot(v1, w3));
    }
    workgroupBarrier(); // all have read the tiles before the next round overwrites them
  }
  put4(pairs[ty], j0 + tx, acc0);
  put4(pairs[ty + 16u], j0 + tx, acc1);
}
