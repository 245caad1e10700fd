// matvec: a linear layer for few tokens; the weights, packed, are read once for ROWS_M tokens.
//
//   y[m, y_offset+j] (+)= dot(x[m], w[j]) + bias[y_offset+j]
//
// 32 lanes share a row of w and stride over K; a tree in workgroup memory adds up what they found.
//
// Shapes   M tokens, N rows of w (one part of a matrix), K inputs
//   x       [M, x_stride] f32     read
//   w       [N, K] packed         read        as internal/quant/format.go says; the buffer is padded to 16 bytes
//   scales  [N, S] u32            read        S words a row likewise; a dummy for f32, f16 and bf16
//   bias    [y_stride] f32        read        a dummy without bias
//   y       [M, y_stride] f32     read_write
// Grid     ceil(N / (WG/LANES)) workgroups of WG over x and y, ceil(M/ROWS_M) in z.
// Traffic  reads w and scales ceil(M/ROWS_M) times and 4*M*K bytes of x (each workgroup again, from cache), writes 4*M*N.
//          Bound by the memory that w takes.
// Storage  16*WG bytes of workgroup memory.
// Numerics f32 sums, 32 partial ones a row; scales that a lib_weight file leaves to the end multiply sums, not weights.
// Needs    a lib_weight file and lib_dot, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, Matmul.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 128u;    // invocations per workgroup, a multiple of LANES
const LANES: u32 = 32u;  // invocations that share a row, a power of two
const ROWS_M: u32 = 1u;  // tokens per workgroup, 1 or 4
const WIDE: u32 = 0u;    // 1: a lane takes 32 weights at a time, which have one weight_scale

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

var<workgroup> sums: array<vec4<f32>, WG>;

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
fn matvec(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
          @builtin(local_invocation_index) tid: u32) {
  let m = wg.z * ROWS_M;
  if (m >= step.rows) { // the same for the whole workgroup
    return;
  }
  let lane = tid % LANES;
  let j = (wg.y * nwg.x + wg.x) * (WG / LANES) + tid / LANES;
  let row = min(j, p.n - 1u); // lanes past the last row must still reach the barriers
  // Tokens past the last one repeat it, and are not written.
  let last = step.rows - 1u;
  let x0 = m * p.x_stride / 4u;
  let x1 = min(m + 1u, last) * p.x_stride / 4u;
  let x2 = min(m + 2u, last) * p.x_stride / 4u;
  let x3 = min(m + 3u, last) * p.x_stride / 4u;
  let several = ROWS_M > 1u && m < last; // the same for the whole workgroup: a token alone need not pay for four

  var acc = vec4<f32>(0.0); // one sum for each token
  if (WIDE == 1u) {
    let quads = p.k / 32u;
    for (var i = lane; i < quads; i += LANES) {
      let b = row * quads + i;
      let s = weight_scale(4u * b);
      let q = weight_quad(b, s.y);
      acc.x += s.x * dot_quad(q, x0 + 8u * i);
      if (several) {
        acc.y += s.x * dot_quad(q, x1 + 8u * i);
        acc.z += s.x * dot_quad(q, x2 + 8u * i);
        acc.w += s.x * dot_quad(q, x3 + 8u * i);
      }
    }
  } else {
    let octets = p.k / 8u;
    for (var i = lane; i < octets; i += LANES) {
      let o = row * octets + i;
      let s = weight_scale(o);
      let q = weight_octet(o, s.y);
      acc.x += s.x * dot_octet(q, x0 + 2u * i);
      if (several) {
        acc.y += s.x * dot_octet(q, x1 + 2u * i);
        acc.z += s.x * dot_octet(q, x2 + 2u * i);
        acc.w += s.x * dot_octet(q, x3 + 2u * i);
      }
    }
  }

  sums[tid] = acc;
  for (var half = LANES / 2u; half > 0u; half /= 2u) {
    workgroupBarrier(); // the sums of the round before are complete
    if (lane < half) {
      sums[tid] += sums[tid + half];
    }
  }
  if (lane == 0u && j < p.n) {
    let sum = sums[tid]; // written by this invocation itself
    put(m, j, sum.x);
    if (ROWS_M > 1u) {
      put(m + 1u, j, sum.y);
      put(m + 2u, j, sum.z);
      put(m + 3u, j, sum.w);
    }
  }
}
