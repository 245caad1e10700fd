// lib_serial_rows: what one invocation loads of four rows of weights and of a token, and their inner products, for kernels without
// barriers. They bind what lib_weight needs and x as an array of vec4<f32>, and have the constant WIDE and Params with n.

// Rows is what one round of the loop over K needs of four rows of w: 32 codes of each, or the 8 of o0.
struct Rows { q0: Quad, q1: Quad, q2: Quad, q3: Quad, scale: vec4<f32> }

// row_starts is where the rows from j on begin, in rounds. Rows past row p.n - 1 repeat it, and are not written.
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
