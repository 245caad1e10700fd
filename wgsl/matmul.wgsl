// matmul: a linear layer for many tokens, by tiles in workgroup memory; packed weights are decoded while they are loaded.
//
//   y[m, y_offset+j] (+)= dot(x[m], w[j]) + bias[y_offset+j]
//
// One workgroup computes TILE x TILE results, one invocation 4 x 4 of them: tokens ty + 16*i and rows tx + 16*j. A tile
// line holds TILE_K elements of one token or row as vec4s along K, so that a step of the inner loop is 16 inner products of
// 8 loaded vectors. Vector c of line r lies at c XOR (r mod 8): neighbours in tx read neighbouring banks.
//
// Shapes   M tokens, N rows of w (one part of a matrix), K inputs
//   x       [M, x_stride] f32     read
//   w       [N, K] packed         read        as internal/quant/format.go says; the buffer is padded to 16 bytes
//   scales  [N, S] u32            read        S words a row likewise; a dummy for f32, f16 and bf16
//   bias    [y_stride] f32        read        a dummy without bias
//   y       [M, y_stride] f32     read_write
// Grid     (ceil(N/64), ceil(M/64), 1) workgroups of 256.
// Traffic  reads w and scales ceil(M/64) times and x ceil(N/64) times, writes 4*M*N bytes. Bound by arithmetic.
// Storage  16,384 bytes of workgroup memory, all that WebGPU guarantees.
// Numerics f32 sums in the order of K; weights are rounded as those of Decode of internal/quant.
// Needs    a lib_weight file, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, Matmul.

// No tuning: the tile and the workgroup belong together.
const WG: u32 = 256u;
const TILE: u32 = 64u;    // tokens, and rows of w, per workgroup
const TILE_K: u32 = 32u;  // elements of K in workgroup memory at a time
const VECS: u32 = 8u;     // TILE_K / 4, vectors of a tile line
const TILE_VECS: u32 = 512u; // TILE * VECS

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

var<workgroup> tile_x: array<vec4<f32>, TILE_VECS>;
var<workgroup> tile_w: array<vec4<f32>, TILE_VECS>;

fn put(m: u32, j: u32, sum: f32) {
  if (m >= step.rows || j >= p.n) {
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

// put4 writes the four results of one token.
fn put4(m: u32, j: u32, sum: vec4<f32>) {
  put(m, j, sum.x);
  put(m, j + 16u, sum.y);
  put(m, j + 32u, sum.z);
  put(m, j + 48u, sum.w);
}

// place is where vector c of tile line r lies.
fn place(r: u32, c: u32) -> u32 {
  return r * VECS + (c ^ (r & 7u));
}

@compute @workgroup_size(WG)
fn matmul(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) tid: u32) {
  let m0 = wg.y * TILE;
  let j0 = wg.x * TILE;
  if (m0 >= step.rows) { // the same for the whole workgroup
    return;
  }
  let tx = tid % 16u;
  let ty = tid / 16u;
  let octets = p.k / 8u;

  // What this invocation loads: octet load_c of line load_r, of w and of x.
  let load_r = tid / 4u;
  let load_c = tid % 4u;
  let w_octet = min(j0 + load_r, p.n - 1u) * octets;
  let x_vec = min(m0 + load_r, step.rows - 1u) * p.x_stride / 4u;
  let at0 = place(load_r, 2u * load_c);
  let at1 = place(load_r, 2u * load_c + 1u);

  var acc0 = vec4<f32>(0.0);
  var acc1 = vec4<f32>(0.0);
  var acc2 = vec4<f32>(0.0);
  var acc3 = vec4<f32>(0.0);
  for (var k0 = 0u; k0 < p.k; k0 += TILE_K) {
    let c = k0 / 8u + load_c;
    if (c < octets) {
      let s = weight_scale(w_octet + c);
      let q = weight_octet(w_octet + c, s.y);
      tile_w[at0] = s.x * q.a;
      tile_w[at1] = s.x * q.b;
      tile_x[at0] = x[x_vec + 2u * c];
      tile_x[at1] = x[x_vec + 2u * c + 1u];
    } else { // past the end of K
      tile_w[at0] = vec4<f32>(0.0);
      tile_w[at1] = vec4<f32>(0.0);
      tile_x[at0] = vec4<f32>(0.0);
      tile_x[at1] = vec4<f32>(0.0);
    }
    workgroupBarrier(); // both tiles are complete before any invocation reads them
    for (var v = 0u; v < VECS; v += 1u) {
      // tx + 16*i and tx agree modulo 8, so one place serves four lines 16 apart.
      let pw = place(tx, v);
      let px = place(ty, v);
      let w0 = tile_w[pw];
      let w1 = tile_w[pw + 16u * VECS];
      let w2 = tile_w[pw + 32u * VECS];
      let w3 = tile_w[pw + 48u * VECS];
      let v0 = tile_x[px];
      let v1 = tile_x[px + 16u * VECS];
      let v2 = tile_x[px + 32u * VECS];
      let v3 = tile_x[px + 48u * VECS];
      acc0 += vec4<f32>(dot(v0, w0), dot(v0, w1), dot(v0, w2), dot(v0, w3));
      acc1 += vec4<f32>(dot(v1, w0), dot(v1, w1), dot(v1, w2), dot(v1, w3));
      acc2 += vec4<f32>(dot(v2, w0), dot(v2, w1), dot(v2, w2), dot(v2, w3));
      acc3 += vec4<f32>(dot(v3, w0), dot(v3, w1), dot(v3, w2), dot(v3, w3));
    }
    workgroupBarrier(); // all have read the tiles before the next round overwrites them
  }
  put4(m0 + ty, j0 + tx, acc0);
  put4(m0 + ty + 16u, j0 + tx, acc1);
  put4(m0 + ty + 32u, j0 + tx, acc2);
  put4(m0 + ty + 48u, j0 + tx, acc3);
}
