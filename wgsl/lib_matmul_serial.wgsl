// lib_matmul_serial: inner products of rows of weights with tokens, by one invocation, for the linear layers without barriers. They
// bind what lib_serial_rows needs, bias and y, and have the constants TOKENS and FOURS and Params with k, n, y_stride, y_offset and
// flags.
//
// Loads are what costs on a processor: each word of w serves TOKENS tokens, each element of x 4*FOURS rows. Sums have the same
// order, by the same text, for every number of tokens.

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

// put_rows writes the rows from j on of one token.
fn put_rows(m: u32, j: u32, s0: vec4<f32>, s1: vec4<f32>, s2: vec4<f32>, s3: vec4<f32>) {
  put(m, j, s0.x);
  put(m, j + 1u, s0.y);
  put(m, j + 2u, s0.z);
  put(m, j + 3u, s0.w);
  put(m, j + 4u, s1.x);
  put(m, j + 5u, s1.y);
  put(m, j + 6u, s1.z);
  put(m, j + 7u, s1.w);
  if (FOURS > 2u) {
    put(m, j + 8u, s2.x);
    put(m, j + 9u, s2.y);
    put(m, j + 10u, s2.z);
    put(m, j + 11u, s2.w);
    put(m, j + 12u, s3.x);
    put(m, j + 13u, s3.y);
    put(m, j + 14u, s3.z);
    put(m, j + 15u, s3.w);
  }
}

// multiply computes TOKENS tokens from m on and 4*FOURS rows from j on. x begins with token x0 and has x_stride elements for each.
fn multiply(m: u32, j: u32, x0: u32, x_stride: u32) {
  if (m >= step.rows || j >= p.n) {
    return;
  }
  let vecs = select(2u, 8u, WIDE == 1u); // of a token in a round
  let rounds = p.k / (4u * vecs);
  let j0 = row_starts(j, rounds);
  let j1 = row_starts(j + 4u, rounds);
  let j2 = row_starts(j + 8u, rounds);
  let j3 = row_starts(j + 12u, rounds);
  // Tokens past the last one repeat it, and are not written.
  let last = vec4<u32>(step.rows - 1u);
  let xa = (min(vec4<u32>(m, m + 1u, m + 2u, m + 3u), last) - x0) * (x_stride / 4u);
  let xe = (min(vec4<u32>(m + 4u, m + 5u, m + 6u, m + 7u), last) - x0) * (x_stride / 4u);

  var a0 = vec4<f32>(0.0); // token m, rows j..j+3
  var a1 = vec4<f32>(0.0); // token m, rows j+4..j+7, and so on
  var a2 = vec4<f32>(0.0);
  var a3 = vec4<f32>(0.0);
  var b0 = vec4<f32>(0.0); // token m+1, and so on
  var b1 = vec4<f32>(0.0);
  var b2 = vec4<f32>(0.0);
  var b3 = vec4<f32>(0.0);
  var c0 = vec4<f32>(0.0);
  var c1 = vec4<f32>(0.0);
  var c2 = vec4<f32>(0.0);
  var c3 = vec4<f32>(0.0);
  var d0 = vec4<f32>(0.0);
  var d1 = vec4<f32>(0.0);
  var d2 = vec4<f32>(0.0);
  var d3 = vec4<f32>(0.0);
  var e0 = vec4<f32>(0.0);
  var e1 = vec4<f32>(0.0);
  var e2 = vec4<f32>(0.0);
  var e3 = vec4<f32>(0.0);
  var f0 = vec4<f32>(0.0);
  var f1 = vec4<f32>(0.0);
  var f2 = vec4<f32>(0.0);
  var f3 = vec4<f32>(0.0);
  var g0 = vec4<f32>(0.0);
  var g1 = vec4<f32>(0.0);
  var g2 = vec4<f32>(0.0);
  var g3 = vec4<f32>(0.0);
  var h0 = vec4<f32>(0.0);
  var h1 = vec4<f32>(0.0);
  var h2 = vec4<f32>(0.0);
  var h3 = vec4<f32>(0.0);
  for (var i = 0u; i < rounds; i += 1u) {
    let at = vecs * i;
    let va = load_x(xa.x + at);
    var vb: Quad;
    var vc: Quad;
    var vd: Quad;
    var ve: Quad;
    var vf: Quad;
    var vg: Quad;
    var vh: Quad;
    if (TOKENS > 1u) {
      vb = load_x(xa.y + at);
      vc = load_x(xa.z + at);
      vd = load_x(xa.w + at);
    }
    if (TOKENS > 4u) {
      ve = load_x(xe.x + at);
      vf = load_x(xe.y + at);
      vg = load_x(xe.z + at);
      vh = load_x(xe.w + at);
    }
    let r0 = load_rows(j0 + i);
    a0 += products(r0, va);
    if (TOKENS > 1u) {
      b0 += products(r0, vb);
      c0 += products(r0, vc);
      d0 += products(r0, vd);
    }
    if (TOKENS > 4u) {
      e0 += products(r0, ve);
      f0 += products(r0, vf);
      g0 += products(r0, vg);
      h0 += products(r0, vh);
    }
    let r1 = load_rows(j1 + i);
    a1 += products(r1, va);
    if (TOKENS > 1u) {
      b1 += products(r1, vb);
      c1 += products(r1, vc);
      d1 += products(r1, vd);
    }
    if (TOKENS > 4u) {
      e1 += products(r1, ve);
      f1 += products(r1, vf);
      g1 += products(r1, vg);
      h1 += products(r1, vh);
    }
    if (FOURS > 2u) {
      let r2 = load_rows(j2 + i);
      a2 += products(r2, va);
      if (TOKENS > 1u) {
        b2 += products(r2, vb);
        c2 += products(r2, vc);
        d2 += products(r2, vd);
      }
      if (TOKENS > 4u) {
        e2 += products(r2, ve);
        f2 += products(r2, vf);
        g2 += products(r2, vg);
        h2 += products(r2, vh);
      }
      let r3 = load_rows(j3 + i);
      a3 += products(r3, va);
      if (TOKENS > 1u) {
        b3 += products(r3, vb);
        c3 += products(r3, vc);
        d3 += products(r3, vd);
      }
      if (TOKENS > 4u) {
        e3 += products(r3, ve);
        f3 += products(r3, vf);
        g3 += products(r3, vg);
        h3 += products(r3, vh);
      }
    }
  }

  put_rows(m, j, a0, a1, a2, a3);
  if (TOKENS > 1u) {
    put_rows(m + 1u, j, b0, b1, b2, b3);
    put_rows(m + 2u, j, c0, c1, c2, c3);
    put_rows(m + 3u, j, d0, d1, d2, d3);
  }
  if (TOKENS > 4u) {
    put_rows(m + 4u, j, e0, e1, e2, e3);
    put_rows(m + 5u, j, f0, f1, f2, f3);
    put_rows(m + 6u, j, g0, g1, g2, g3);
    put_rows(m + 7u, j, h0, h1, h2, h3);
  }
}
