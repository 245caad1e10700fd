// matmul_serial: matmul without barriers, for software adapters: one invocation computes four rows for four tokens.
//
//   y[m, y_offset+j] (+)= dot(x[m], w[j]) + bias[y_offset+j]
//
// Loads are what costs on a processor: each word of w serves four tokens, each element of x four rows.
//
// Shapes   M tokens, N rows of w (one part of a matrix), K inputs
//   x       [M, x_stride] f32     read
//   w       [N, K] packed         read        as internal/quant/format.go says; the buffer is padded to 16 bytes
//   scales  [N, K/GROUP] u32      read        f16 scale and f16 zero; a dummy for f32, f16 and bf16
//   bias    [y_stride] f32        read        a dummy without bias
//   y       [M, y_stride] f32     read_write
// Grid     ceil(N / (4*WG)) workgroups of WG over x and y, ceil(M/4) in z.
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
  put(m, j + 1u, sum.y);
  put(m, j + 2u, sum.z);
  put(m, j + 3u, sum.w);
}

@compute @workgroup_size(WG)
fn matmul_serial(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
                 @builtin(local_invocation_index) tid: u32) {
  let m = 4u * wg.z;
  let j = 4u * ((wg.y * nwg.x + wg.x) * WG + tid);
  if (m >= step.rows || j >= p.n) {
    return;
  }
  // Tokens past the last one repeat it, and rows likewise; neither are written.
  let last = step.rows - 1u;
  let xm = min(vec4<u32>(m, m + 1u, m + 2u, m + 3u), vec4<u32>(last)) * (p.x_stride / 4u);
  let octets = p.k / 8u;
  let o = min(vec4<u32>(j, j + 1u, j + 2u, j + 3u), vec4<u32>(p.n - 1u)) * octets;

  var acc0 = vec4<f32>(0.0); // token m, one sum for each row
  var acc1 = vec4<f32>(0.0); // token m+1, and so on
  var acc2 = vec4<f32>(0.0);
  var acc3 = vec4<f32>(0.0);
  for (var i = 0u; i < octets; i += 1u) {
    let s0 = weight_scale(o.x + i);
    let s1 = weight_scale(o.y + i);
    let s2 = weight_scale(o.z + i);
    let s3 = weight_scale(o.w + i);
    let q0 = weight_octet(o.x + i, s0.y);
    let q1 = weight_octet(o.y + i, s1.y);
    let q2 = weight_octet(o.z + i, s2.y);
    let q3 = weight_octet(o.w + i, s3.y);
    let s = vec4<f32>(s0.x, s1.x, s2.x, s3.x);
    acc0 += s * dot_rows(q0, q1, q2, q3, xm.x + 2u * i);
    acc1 += s * dot_rows(q0, q1, q2, q3, xm.y + 2u * i);
    acc2 += s * dot_rows(q0, q1, q2, q3, xm.z + 2u * i);
    acc3 += s * dot_rows(q0, q1, q2, q3, xm.w + 2u * i);
  }
  put4(m, j, acc0);
  put4(m + 1u, j, acc1);
  put4(m + 2u, j, acc2);
  put4(m + 3u, j, acc3);
}
