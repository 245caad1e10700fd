// matvec_serial: matvec for one token and without barriers, for software adapters: one invocation computes four rows.
//
//   y[m, y_offset+j] (+)= dot(x[m], w[j]) + bias[y_offset+j]
//
// On a processor a barrier costs a context switch for each invocation, and a load of x costs as much as one of w: four rows
// share each load of x.
//
// Shapes   M tokens, N rows of w (one part of a matrix), K inputs
//   x       [M, x_stride] f32     read
//   w       [N, K] packed         read        as internal/quant/format.go says; the buffer is padded to 16 bytes
//   scales  [N, K/GROUP] u32      read        f16 scale and f16 zero; a dummy for f32, f16 and bf16
//   bias    [y_stride] f32        read        a dummy without bias
//   y       [M, y_stride] f32     read_write
// Grid     ceil(N / (4*WG)) workgroups of WG over x and y, M in z.
// Traffic  reads w and scales M times and 4*M*K bytes of x, writes 4*M*N.
// Storage  no workgroup memory.
// Numerics f32 sums in the order of K; codes are exact, scale * (code - zero) is never rounded by itself.
// Needs    a lib_weight file and lib_dot, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, Matmul.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 32u;  // invocations per workgroup
const WIDE: u32 = 0u; // 1: 32 weights at a time; K is a multiple of 32, and so is GROUP

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
fn matvec_serial(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
                 @builtin(local_invocation_index) tid: u32) {
  let m = wg.z;
  let j = 4u * ((wg.y * nwg.x + wg.x) * WG + tid);
  if (m >= step.rows || j >= p.n) {
    return;
  }
  // Rows past the last one repeat it, and are not written.
  let last = p.n - 1u;
  let rows = min(vec4<u32>(j, j + 1u, j + 2u, j + 3u), vec4<u32>(last));
  let xm = m * p.x_stride / 4u;

  var acc = vec4<f32>(0.0); // one sum for each row
  if (WIDE == 1u) {
    let quads = p.k / 32u;
    let b = rows * quads;
    for (var i = 0u; i < quads; i += 1u) {
      let s0 = weight_scale(4u * (b.x + i));
      let s1 = weight_scale(4u * (b.y + i));
      let s2 = weight_scale(4u * (b.z + i));
      let s3 = weight_scale(4u * (b.w + i));
      let q0 = weight_quad(b.x + i, s0.y);
      let q1 = weight_quad(b.y + i, s1.y);
      let q2 = weight_quad(b.z + i, s2.y);
      let q3 = weight_quad(b.w + i, s3.y);
      let at = xm + 8u * i;
      var d = dot_rows(q0.o0, q1.o0, q2.o0, q3.o0, at);
      d += dot_rows(q0.o1, q1.o1, q2.o1, q3.o1, at + 2u);
      d += dot_rows(q0.o2, q1.o2, q2.o2, q3.o2, at + 4u);
      d += dot_rows(q0.o3, q1.o3, q2.o3, q3.o3, at + 6u);
      acc += d * vec4<f32>(s0.x, s1.x, s2.x, s3.x);
    }
  } else {
    let octets = p.k / 8u;
    let o = rows * octets;
    for (var i = 0u; i < octets; i += 1u) {
      let s0 = weight_scale(o.x + i);
      let s1 = weight_scale(o.y + i);
      let s2 = weight_scale(o.z + i);
      let s3 = weight_scale(o.w + i);
      let d = dot_rows(weight_octet(o.x + i, s0.y), weight_octet(o.y + i, s1.y), weight_octet(o.z + i, s2.y),
                       weight_octet(o.w + i, s3.y), xm + 2u * i);
      acc += d * vec4<f32>(s0.x, s1.x, s2.x, s3.x);
    }
  }
  put(m, j, acc.x);
  if (j + 1u < p.n) {
    put(m, j + 1u, acc.y);
  }
  if (j + 2u < p.n) {
    put(m, j + 2u, acc.z);
  }
  if (j + 3u < p.n) {
    put(m, j + 3u, acc.w);
  }
}
