// lib_dot: inner products of decoded weights with activations, for kernels that bind `x` as array<vec4<f32>>. xo is where
// the activations begin, in vec4 elements. Octet and Quad come from a lib_weight file.

fn dot_octet(q: Octet, xo: u32) -> f32 {
  return dot(q.a, x[xo]) + dot(q.b, x[xo + 1u]);
}

fn dot_quad(q: Quad, xo: u32) -> f32 {
  return (dot_octet(q.o0, xo) + dot_octet(q.o1, xo + 2u)) + (dot_octet(q.o2, xo + 4u) + dot_octet(q.o3, xo + 6u));
}

// dot_rows is the inner products of four rows with the same activations.
fn dot_rows(q0: Octet, q1: Octet, q2: Octet, q3: Octet, xo: u32) -> vec4<f32> {
  let a = x[xo];
  let b = x[xo + 1u];
  return vec4<f32>(dot(q0.a, a) + dot(q0.b, b), dot(q1.a, a) + dot(q1.b, b),
                   dot(q2.a, a) + dot(q2.b, b), dot(q3.a, a) + dot(q3.b, b));
}
