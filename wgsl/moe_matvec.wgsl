// moe_matvec: a linear layer of the experts that each token was sent to, for few tokens.
//
//   y[m, y_offset + s*N + j] = dot(x[m, s*x_slot ..], w[chosen[m,s], j])
//
// 32 lanes share a row of w and stride over K; a tree in workgroup memory adds up what they found, as in matvec.
//
// Shapes   M tokens, N rows and K inputs of an expert; w is one part of the matrix, some experts
//   x       [M, x_stride] f32         read
//   chosen  [M, slots] u32            read
//   w       [experts*N, K] packed     read   as internal/quant/format.go says; the buffer is padded to 16 bytes
//   scales  [experts*N, S] u32        read   S words a row likewise; a dummy for f32, f16 and bf16
//   y       [M, y_stride] f32         write
// Grid     ceil(N / (WG/LANES)) workgroups of WG over x and y, M*slots in z. Those of experts that are not in w return.
// Traffic  reads an expert's rows of w and scales for each token that is sent to it, writes 4*M*slots*N. Bound by the memory that
//          w takes.
// Storage  4*WG bytes of workgroup memory.
// Numerics f32 sums, 32 partial ones a row; scales that a lib_weight file leaves to the end multiply sums, not weights.
// Needs    a lib_weight file and lib_dot, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, Experts.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 128u;   // invocations per workgroup, a multiple of LANES
const LANES: u32 = 32u; // invocations that share a row, a power of two
const WIDE: u32 = 0u;   // 1: a lane takes 32 weights at a time; K is a multiple of 32, and so is GROUP

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
@group(0) @binding(3) var<storage, read> chosen: array<u32>;
@group(0) @binding(4) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read> scales: array<u32>;
@group(0) @binding(6) var<storage, read_write> y: array<f32>;

var<workgroup> sums: array<f32, WG>;

@compute @workgroup_size(WG)
fn moe_matvec(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
              @builtin(local_invocation_index) tid: u32) {
  let m = wg.z / p.slots;
  if (m >= step.rows) { // the same for the whole workgroup, as is what follows
    return;
  }
  let expert = chosen[wg.z] - p.expert0; // wraps to a large number for those before
  if (expert >= p.experts) {
    return;
  }
  let s = wg.z - m * p.slots;
  let lane = tid % LANES;
  let j = (wg.y * nwg.x + wg.x) * (WG / LANES) + tid / LANES;
  let row = expert * p.n + min(j, p.n - 1u); // lanes past the last row must still reach the barriers
  let xo = (m * p.x_stride + s * p.x_slot) / 4u;

  var acc = 0.0;
  if (WIDE == 1u) {
    let quads = p.k / 32u;
    for (var i = lane; i < quads; i += LANES) {
      let b = row * quads + i;
      let c = weight_scale(4u * b);
      acc += c.x * dot_quad(weight_quad(b, c.y), xo + 8u * i);
    }
  } else {
    let octets = p.k / 8u;
    for (var i = lane; i < octets; i += LANES) {
      let o = row * octets + i;
      let c = weight_scale(o);
      acc += c.x * dot_octet(weight_octet(o, c.y), xo + 2u * i);
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
    y[m * p.y_stride + p.y_offset + s * p.n + j] = sums[tid]; // written by this invocation itself
  }
}
