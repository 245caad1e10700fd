// matmul_serial: a linear layer without barriers, for software adapters: one invocation computes some rows for one token, or for
// four.
//
//   y[m, y_offset+j] (+)= dot(x[m], w[j]) + bias[y_offset+j]
//
// Loads are what costs on a processor: each word of w serves all tokens of an invocation, each element of x all its rows.
// Both values of TOKENS sum a row in the same order and by the same text.
//
// Shapes   M tokens, N rows of w (one part of a matrix), K inputs
//   x       [M, x_stride] f32     read
//   w       [N, K] packed         read        as internal/quant/format.go says; the buffer is padded to 16 bytes
//   scales  [N, K/GROUP] u32      read        f16 scale and f16 zero; a dummy for f32, f16 and bf16
//   bias    [y_stride] f32        read        a dummy without bias
//   y       [M, y_stride] f32     read_write
// Grid     ceil(N / (4*FOURS*WG)) workgroups of WG over x and y, ceil(M/TOKENS) in z. With bit 2 of flags TOKENS = 4 leaves a
//          token that is alone in its four to TOKENS = 1, whose grid has 1 in z then and which computes that one only.
// Traffic  reads w and scales ceil(M/TOKENS) times and 4*M*K bytes of x, writes 4*M*N.
// Storage  no workgroup memory.
// Numerics f32 sums in the order of K; codes are exact, scale * (code - zero) is never rounded by itself.
// Needs    a lib_weight file, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, Matmul.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 8u;     // invocations per workgroup
const TOKENS: u32 = 1u; // tokens per invocation, 1 or 4
const FOURS: u32 = 2u;  // rows per invocation, in fours: 2 or 4
const WIDE: u32 = 0u;   // 1: 32 weights at a time; K is a multiple of 32, and so is GROUP

struct Params {
  k: u32,        // K, elements, a multiple of 8
  n: u32,        // N, rows of this part
  x_stride: u32, // elements of a row of x, a multiple of 4
  y_stride: u32, // elements of a row of y
  y_offset: u32, // column of y that belongs to row 0 of w
  flags: u32,    // bit 0: add to y, bit 1: there is a bias, bit 2: a token alone in its four goes to TOKENS = 1
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

// Rows is what one round of the loop over K needs of four rows of w: 32 codes of each, or the 8 of o0.
struct Rows { q0: Quad, q1: Quad, q2: Quad, q3: Quad, scale: vec4<f32> }

// row_starts is where the rows from j on begin, in rounds. Rows past the last one repeat it, and are not written.
fn row_starts(j: u32, rounds: u32) -> vec4<u32> {
  return min(vec4<u32>(j, j + 1u, j + 2u, j + 3u), vec4<u32>(p.n - 1u)) * rounds;
}

fn codes(b: u32, zero: f32) -> Quad {
  if (WIDE == 1u) {
    return weight_quad(b, zero);
  }
  var q: Quad;
  q.o0 = weight_octet(b, zero);
  return q;
}

fn load_rows(b: vec4<u32>) -> Rows {
  let o = b * select(1u, 4u, WIDE == 1u);
  let s0 = weight_scale(o.x);
  let s1 = weight_scale(o.y);
  let s2 = weight_scale(o.z);
  let s3 = weight_scale(o.w);
  return Rows(codes(b.x, s0.y), codes(b.y, s1.y), codes(b.z, s2.y), codes(b.w, s3.y),
              vec4<f32>(s0.x, s1.x, s2.x, s3.x));
}

// load_x is what one round needs of a token.
fn load_x(at: u32) -> Quad {
  var q: Quad;
  q.o0 = Octet(x[at], x[at + 1u]);
  if (WIDE == 1u) {
    q.o1 = Octet(x[at + 2u], x[at + 3u]);
    q.o2 = Octet(x[at + 4u], x[at + 5u]);
    q.o3 = Octet(x[at + 6u], x[at + 7u]);
  }
  return q;
}

fn dot_octets(a: Octet, b: Octet) -> f32 {
  return dot(a.a, b.a) + dot(a.b, b.b);
}

// products is one round of the inner products of four rows with a token.
fn products(r: Rows, v: Quad) -> vec4<f32> {
  var d = vec4<f32>(dot_octets(r.q0.o0, v.o0), dot_octets(r.q1.o0, v.o0), dot_octets(r.q2.o0, v.o0), dot_octets(r.q3.o0, v.o0));
  if (WIDE == 1u) {
    d += vec4<f32>(dot_octets(r.q0.o1, v.o1), dot_octets(r.q1.o1, v.o1), dot_octets(r.q2.o1, v.o1), dot_octets(r.q3.o1, v.o1));
    d += vec4<f32>(dot_octets(r.q0.o2, v.o2), dot_octets(r.q1.o2, v.o2), dot_octets(r.q2.o2, v.o2), dot_octets(r.q3.o2, v.o2));
    d += vec4<f32>(dot_octets(r.q0.o3, v.o3), dot_octets(r.q1.o3, v.o3), dot_octets(r.q2.o3, v.o3), dot_octets(r.q3.o3, v.o3));
  }
  return r.scale * d;
}

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

// put4 writes four rows of one token.
fn put4(m: u32, j: u32, sum: vec4<f32>) {
  put(m, j, sum.x);
  put(m, j + 1u, sum.y);
  put(m, j + 2u, sum.z);
  put(m, j + 3u, sum.w);
}

@compute @workgroup_size(WG)
fn matmul_serial(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
                 @builtin(local_invocation_index) tid: u32) {
  let j = 4u * FOURS * ((wg.y * nwg.x + wg.x) * WG + tid);
  let last = step.rows - 1u;
  let apart = (p.flags & 4u) != 0u;
  let m = select(TOKENS * wg.z, last, apart && TOKENS == 1u);
  if (m >= step.rows || j >= p.n) {
    return;
  }
  // Whether this is about the token that is alone, and whose it is.
  let alone = m == last && m % 4u == 0u;
  if (apart && alone != (TOKENS == 1u)) {
    return;
  }
  let vecs = select(2u, 8u, WIDE == 1u); // of a token in a round
  let rounds = p.k / (4u * vecs);
  let j0 = row_starts(j, rounds);
  let j1 = row_starts(j + 4u, rounds);
  let j2 = row_starts(j + 8u, rounds);
  let j3 = row_starts(j + 12u, rounds);
  // Tokens past the last one repeat it, and are not written.
  let xm = min(vec4<u32>(m, m + 1u, m + 2u, m + 3u), vec4<u32>(last)) * (p.x_stride / 4u);

  var a0 = vec4<f32>(0.0); // token m, rows j..j+3
  var a1 = vec4<f32>(0.0); // token m, rows j+4..j+7, and so on
  var a2 = vec4<f32>(0.0);
  var a3 = vec4<f32>(0.0);
  var b0 = vec4<f32>(0.0); // token m+1
  var b1 = vec4<f32>(0.0);
  var b2 = vec4<f32>(0.0);
  var b3 = vec4<f32>(0.0);
  var c0 = vec4<f32>(0.0); // token m+2
  var c1 = vec4<f32>(0.0);
  var c2 = vec4<f32>(0.0);
  var c3 = vec4<f32>(0.0);
  var d0 = vec4<f32>(0.0); // token m+3
  var d1 = vec4<f32>(0.0);
  var d2 = vec4<f32>(0.0);
  var d3 = vec4<f32>(0.0);
  for (var i = 0u; i < rounds; i += 1u) {
    let va = load_x(xm.x + vecs * i);
    var vb: Quad;
    var vc: Quad;
    var vd: Quad;
    if (TOKENS > 1u) {
      vb = load_x(xm.y + vecs * i);
      vc = load_x(xm.z + vecs * i);
      vd = load_x(xm.w + vecs * i);
    }
    let r0 = load_rows(j0 + i);
    a0 += products(r0, va);
    if (TOKENS > 1u) {
      b0 += products(r0, vb);
      c0 += products(r0, vc);
      d0 += products(r0, vd);
    }
    let r1 = load_rows(j1 + i);
    a1 += products(r1, va);
    if (TOKENS > 1u) {
      b1 += products(r1, vb);
      c1 += products(r1, vc);
      d1 += products(r1, vd);
    }
    if (FOURS > 2u) {
      let r2 = load_rows(j2 + i);
      a2 += products(r2, va);
      if (TOKENS > 1u) {
        b2 += products(r2, vb);
        c2 += products(r2, vc);
        d2 += products(r2, vd);
      }
      let r3 = load_rows(j3 + i);
      a3 += products(r3, va);
      if (TOKENS > 1u) {
        b3 += products(r3, vb);
        c3 += products(r3, vc);
        d3 += products(r3, vd);
      }
    }
  }

  put4(m, j, a0);
  put4(m, j + 4u, a1);
  if (FOURS > 2u) {
    put4(m, j + 8u, a2);
    put4(m, j + 12u, a3);
  }
  if (TOKENS > 1u) {
    put4(m + 1u, j, b0);
    put4(m + 1u, j + 4u, b1);
    put4(m + 2u, j, c0);
    put4(m + 2u, j + 4u, c1);
    put4(m + 3u, j, d0);
    put4(m + 3u, j + 4u, d1);
    if (FOURS > 2u) {
      put4(m + 1u, j + 8u, b2);
      put4(m + 1u, j + 12u, b3);
      put4(m + 2u, j + 8u, c2);
      put4(m + 2u, j + 12u, c3);
      put4(m + 3u, j + 8u, d2);
      put4(m + 3u, j + 12u, d3);
    }
  }
}
