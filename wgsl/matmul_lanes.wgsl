// matmul_lanes: a linear layer for a few tokens, and the RMS norm before it; weights are decoded into registers, once for eight tokens.
//
//   z[m, j] = dot(x[m], w[j])                                                 without NORM
//   z[m, j] = dot(x[m] * weight, w[j]) / sqrt(mean(x[m]^2) + eps)             with NORM
//   y[m, y_offset+j] (+)= z[m, j] + bias[y_offset+j]                          without GATED
//   y[m, j] = silu(z[m, j] + bias[j]) * (z[m, half+j] + bias[half+j])         with GATED, for j < half = N/2
//
// LANES invocations share ROWS rows of w and eight tokens, and stride over K, eight inputs at a time; what they found is added up in
// workgroup memory.
//
// Shapes   M tokens, N rows of w (one part of a matrix), K inputs
//   x       [M, x_stride] f32   read
//   w       [N, K] packed       read        as internal/quant/format.go says; the buffer is padded to 16 bytes
//   scales  [N, S] u32          read        S words a row likewise; a dummy for f32, f16 and bf16
//   bias    [y_stride] f32      read        a dummy without bias; with GATED [N]
//   weight  [K] f32             read        of the norm; a dummy without NORM
//   y       [M, y_stride] f32   read_write
// Grid     ceil(N/ROWS / (WG/LANES)) workgroups of WG over x and y, ceil(M/8) in z.
// Traffic  reads w and scales ceil(M/8) times and x N/ROWS times, mostly from caches, writes 4*M*N bytes. Bound by latency for a layer
//          of some MB, by the reading of x for an LM head.
// Storage  128*WG bytes of workgroup memory.
// Numerics f32 sums, LANES partial ones a row. The order does not depend on the step.
// Needs    a lib_weight file, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, MatmulParts.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 128u;   // invocations per workgroup, a multiple of LANES
const LANES: u32 = 32u; // invocations that share rows, a multiple of 8
const ROWS: u32 = 4u;   // rows that they share: 4, 8
const GATED: u32 = 0u;  // 1: silu of the upper half of rows times the lower half
const NORM: u32 = 0u;   // 1: x is normed

struct Params {
  k: u32,        // K, elements, a multiple of 8
  n: u32,        // N, rows of this part
  x_stride: u32, // elements of a row of x, a multiple of 4
  y_stride: u32, // elements of a row of y
  y_offset: u32, // column of y that belongs to row 0 of w
  flags: u32,    // bit 0: add to y, bit 1: there is a bias
  eps: f32,      // added to the mean square
  pad0: u32,
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
@group(0) @binding(6) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> y: array<f32>;

const TOKENS: u32 = 8u;
const FOURS: u32 = ROWS / 4u;
const SUMS: u32 = 8u * WG;
const SHARES: u32 = LANES / 8u; // invocations that add up one token's sums

var<workgroup> sums: array<vec4<f32>, SUMS>; // by token, then by invocation: one for each of four rows

// Four is four neighbouring inputs of four rows: k0 has the first of each.
struct Four { k0: vec4<f32>, k1: vec4<f32>, k2: vec4<f32>, k3: vec4<f32> }

fn turn(a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) -> Four {
  return Four(vec4<f32>(a.x, b.x, c.x, d.x), vec4<f32>(a.y, b.y, c.y, d.y),
              vec4<f32>(a.z, b.z, c.z, d.z), vec4<f32>(a.w, b.w, c.w, d.w));
}

fn mac(sum: vec4<f32>, v: vec4<f32>, f: Four) -> vec4<f32> {
  let a = fma(vec4<f32>(v.y), f.k1, fma(vec4<f32>(v.x), f.k0, sum));
  return fma(vec4<f32>(v.w), f.k3, fma(vec4<f32>(v.z), f.k2, a));
}

fn mac8(sum: vec4<f32>, u: vec4<f32>, v: vec4<f32>, lo: Four, hi: Four) -> vec4<f32> {
  return mac(mac(sum, u, lo), v, hi);
}

// octet is eight neighbouring weights, whole.
fn octet(o: u32) -> Octet {
  let s = weight_scale(o);
  let q = weight_octet(o, s.y);
  return Octet(s.x * q.a, s.x * q.b);
}

fn bias_at(column: u32) -> f32 {
  if ((p.flags & 2u) == 0u) {
    return 0.0;
  }
  return bias[column];
}

fn put(m: u32, j: u32, sum: f32) {
  if (m >= step.rows || j >= p.n) {
    return;
  }
  let column = p.y_offset + j;
  let at = m * p.y_stride + column;
  var v = sum + bias_at(column);
  if ((p.flags & 1u) != 0u) {
    v += y[at];
  }
  y[at] = v;
}

fn put_gated(m: u32, j: u32, gate: f32, up: f32) {
  let half = p.n / 2u;
  if (m >= step.rows || j >= half) {
    return;
  }
  let g = gate + bias_at(j);
  y[m * p.y_stride + j] = g / (1.0 + exp(min(-g, 88.0))) * (up + bias_at(half + j));
}

// rows_of is the rows of a group's four number which. Invocations past the last row must still reach the barriers.
fn rows_of(group: u32, which: u32) -> vec4<u32> {
  let four = group * FOURS + which;
  if (GATED == 1u) {
    let half = p.n / 2u;
    let first = min(vec2<u32>(2u * four, 2u * four + 1u), vec2<u32>(half - 1u));
    return vec4<u32>(first, first + vec2<u32>(half));
  }
  return min(vec4<u32>(4u * four) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.n - 1u));
}

// factor is what the norm multiplies the sums of an invocation's token with (see finish), of the sums of squares that it has found of tokens 0
// to 3 and 4 to 7. All of the workgroup call it.
fn factor(tid: u32, s0: vec4<f32>, s1: vec4<f32>) -> f32 {
  if (NORM == 0u) {
    return 1.0;
  }
  sums[tid] = s0;
  sums[WG + tid] = s1;
  workgroupBarrier(); // the squares of all lanes are complete
  let share = tid % SHARES;
  let token = tid / SHARES % TOKENS;
  let bundle = tid / (SHARES * TOKENS);
  let start = token / 4u * WG + bundle * LANES + 8u * share;
  var sum = 0.0;
  for (var i = 0u; i < 8u; i += 1u) {
    sum += sums[start + (i + share) % 8u][token % 4u];
  }
  workgroupBarrier(); // all have read before the squares are overwritten
  sums[tid].x = sum;
  workgroupBarrier(); // the shares are complete
  sum = 0.0;
  for (var i = 0u; i < SHARES; i += 1u) {
    sum += sums[tid - share + i].x;
  }
  workgroupBarrier(); // all have read the shares before the sums take their place
  return inverseSqrt(sum / f32(p.k) + p.eps);
}

// finish adds up what the lanes found of all tokens and four rows, and writes it. All of the workgroup call it.
fn finish(tid: u32, m0: u32, group: u32, which: u32, r: f32, a0: vec4<f32>, a1: vec4<f32>, a2: vec4<f32>, a3: vec4<f32>,
          a4: vec4<f32>, a5: vec4<f32>, a6: vec4<f32>, a7: vec4<f32>) {
  sums[tid] = a0;
  sums[WG + tid] = a1;
  sums[2u * WG + tid] = a2;
  sums[3u * WG + tid] = a3;
  sums[4u * WG + tid] = a4;
  sums[5u * WG + tid] = a5;
  sums[6u * WG + tid] = a6;
  sums[7u * WG + tid] = a7;
  workgroupBarrier(); // the sums of all lanes are complete
  // SHARES invocations take one token and four rows; each begins with another lane, so that they read different banks.
  let share = tid % SHARES;
  let token = tid / SHARES % TOKENS;
  let bundle = tid / (SHARES * TOKENS);
  let start = token * WG + bundle * LANES + 8u * share;
  var sum = vec4<f32>(0.0);
  for (var i = 0u; i < 8u; i += 1u) {
    sum += sums[start + (i + share) % 8u];
  }
  workgroupBarrier(); // all have read before the sums are overwritten
  sums[tid] = sum;
  workgroupBarrier(); // the shares are complete
  if (share != 0u) {
    return;
  }
  for (var i = 1u; i < SHARES; i += 1u) {
    sum += sums[tid + i];
  }
  if (NORM == 1u) {
    sum *= r;
  }
  let m = m0 + token;
  let four = (group + bundle) * FOURS + which;
  if (GATED == 1u) {
    put_gated(m, 2u * four, sum.x, sum.z);
    put_gated(m, 2u * four + 1u, sum.y, sum.w);
    return;
  }
  put(m, 4u * four, sum.x);
  put(m, 4u * four + 1u, sum.y);
  put(m, 4u * four + 2u, sum.z);
  put(m, 4u * four + 3u, sum.w);
}

@compute @workgroup_size(WG)
fn matmul_lanes(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
                @builtin(local_invocation_index) tid: u32) {
  let m0 = wg.z * TOKENS;
  if (m0 >= step.rows) { // the same for the whole workgroup
    return;
  }
  let group = (wg.y * nwg.x + wg.x) * (WG / LANES);
  let lane = tid % LANES;
  let octets = p.k / 8u;
  let at = rows_of(group + tid / LANES, 0u) * octets;
  let at_more = rows_of(group + tid / LANES, 1u) * octets;
  // Tokens past the last one repeat it, and are not written.
  let last = step.rows - 1u;
  let stride = p.x_stride / 4u;
  let x0 = m0 * stride;
  let x1 = min(m0 + 1u, last) * stride;
  let x2 = min(m0 + 2u, last) * stride;
  let x3 = min(m0 + 3u, last) * stride;
  let x4 = min(m0 + 4u, last) * stride;
  let x5 = min(m0 + 5u, last) * stride;
  let x6 = min(m0 + 6u, last) * stride;
  let x7 = min(m0 + 7u, last) * stride;
  var a0 = vec4<f32>(0.0);
  var a1 = vec4<f32>(0.0);
  var a2 = vec4<f32>(0.0);
  var a3 = vec4<f32>(0.0);
  var a4 = vec4<f32>(0.0);
  var a5 = vec4<f32>(0.0);
  var a6 = vec4<f32>(0.0);
  var a7 = vec4<f32>(0.0);
  var b0 = vec4<f32>(0.0);
  var b1 = vec4<f32>(0.0);
  var b2 = vec4<f32>(0.0);
  var b3 = vec4<f32>(0.0);
  var b4 = vec4<f32>(0.0);
  var b5 = vec4<f32>(0.0);
  var b6 = vec4<f32>(0.0);
  var b7 = vec4<f32>(0.0);
  var s0 = vec4<f32>(0.0); // sums of squares of tokens 0 to 3
  var s1 = vec4<f32>(0.0);
  for (var i = lane; i < octets; i += LANES) {
    let q0 = octet(at.x + i);
    let q1 = octet(at.y + i);
    let q2 = octet(at.z + i);
    let q3 = octet(at.w + i);
    let lo = turn(q0.a, q1.a, q2.a, q3.a);
    let hi = turn(q0.b, q1.b, q2.b, q3.b);
    var more_lo = lo;
    var more_hi = hi;
    if (ROWS == 8u) {
      let q4 = octet(at_more.x + i);
      let q5 = octet(at_more.y + i);
      let q6 = octet(at_more.z + i);
      let q7 = octet(at_more.w + i);
      more_lo = turn(q4.a, q5.a, q6.a, q7.a);
      more_hi = turn(q4.b, q5.b, q6.b, q7.b);
    }
    var nu = vec4<f32>(1.0);
    var nv = vec4<f32>(1.0);
    if (NORM == 1u) {
      nu = weight[2u * i];
      nv = weight[2u * i + 1u];
    }
    var u0 = x[x0 + 2u * i];
    var v0 = x[x0 + 2u * i + 1u];
    if (NORM == 1u) {
      s0.x += dot(u0, u0) + dot(v0, v0);
      u0 *= nu;
      v0 *= nv;
    }
    a0 = mac8(a0, u0, v0, lo, hi);
    if (ROWS == 8u) {
      b0 = mac8(b0, u0, v0, more_lo, more_hi);
    }
    var u1 = x[x1 + 2u * i];
    var v1 = x[x1 + 2u * i + 1u];
    if (NORM == 1u) {
      s0.y += dot(u1, u1) + dot(v1, v1);
      u1 *= nu;
      v1 *= nv;
    }
    a1 = mac8(a1, u1, v1, lo, hi);
    if (ROWS == 8u) {
      b1 = mac8(b1, u1, v1, more_lo, more_hi);
    }
    var u2 = x[x2 + 2u * i];
    var v2 = x[x2 + 2u * i + 1u];
    if (NORM == 1u) {
      s0.z += dot(u2, u2) + dot(v2, v2);
      u2 *= nu;
      v2 *= nv;
    }
    a2 = mac8(a2, u2, v2, lo, hi);
    if (ROWS == 8u) {
      b2 = mac8(b2, u2, v2, more_lo, more_hi);
    }
    var u3 = x[x3 + 2u * i];
    var v3 = x[x3 + 2u * i + 1u];
    if (NORM == 1u) {
      s0.w += dot(u3, u3) + dot(v3, v3);
      u3 *= nu;
      v3 *= nv;
    }
    a3 = mac8(a3, u3, v3, lo, hi);
    if (ROWS == 8u) {
      b3 = mac8(b3, u3, v3, more_lo, more_hi);
    }
    var u4 = x[x4 + 2u * i];
    var v4 = x[x4 + 2u * i + 1u];
    if (NORM == 1u) {
      s1.x += dot(u4, u4) + dot(v4, v4);
      u4 *= nu;
      v4 *= nv;
    }
    a4 = mac8(a4, u4, v4, lo, hi);
    if (ROWS == 8u) {
      b4 = mac8(b4, u4, v4, more_lo, more_hi);
    }
    var u5 = x[x5 + 2u * i];
    var v5 = x[x5 + 2u * i + 1u];
    if (NORM == 1u) {
      s1.y += dot(u5, u5) + dot(v5, v5);
      u5 *= nu;
      v5 *= nv;
    }
    a5 = mac8(a5, u5, v5, lo, hi);
    if (ROWS == 8u) {
      b5 = mac8(b5, u5, v5, more_lo, more_hi);
    }
    var u6 = x[x6 + 2u * i];
    var v6 = x[x6 + 2u * i + 1u];
    if (NORM == 1u) {
      s1.z += dot(u6, u6) + dot(v6, v6);
      u6 *= nu;
      v6 *= nv;
    }
    a6 = mac8(a6, u6, v6, lo, hi);
    if (ROWS == 8u) {
      b6 = mac8(b6, u6, v6, more_lo, more_hi);
    }
    var u7 = x[x7 + 2u * i];
    var v7 = x[x7 + 2u * i + 1u];
    if (NORM == 1u) {
      s1.w += dot(u7, u7) + dot(v7, v7);
      u7 *= nu;
      v7 *= nv;
    }
    a7 = mac8(a7, u7, v7, lo, hi);
    if (ROWS == 8u) {
      b7 = mac8(b7, u7, v7, more_lo, more_hi);
    }
  }
  let r = factor(tid, s0, s1);
  finish(tid, m0, group, 0u, r, a0, a1, a2, a3, a4, a5, a6, a7);
  if (ROWS == 8u) {
    workgroupBarrier(); // all have read the shares before the next sums take their place
    finish(tid, m0, group, 1u, r, b0, b1, b2, b3, b4, b5, b6, b7);
  }
}
