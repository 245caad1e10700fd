// lib_weight_f32: weights stored as f32, for kernels that bind `w` as array<vec4<u32>> and `scales` as array<u32>.
//
// Every lib_weight file has the same functions. An octet is 8 neighbouring weights of a row; octet o of a matrix
// [rows, K] is weights 8*o..8*o+7 in row-major order, so row r begins at octet r*K/8. A quad is 4 neighbouring octets
// with one weight_scale; quad b is octets 4*b..4*b+3, and exists for K a multiple of 32.
//
// A weight is scale times what weight_octet returns. Where weights are no product with a scale, weight_octet returns the weights
// themselves, and the scale is 1.
//
// Layout   8 words an octet.  internal/quant/format.go defines all layouts.

struct Octet { a: vec4<f32>, b: vec4<f32> }
struct Quad { o0: Octet, o1: Octet, o2: Octet, o3: Octet }

// weight_scale is (scale, zero) of octet o.
fn weight_scale(o: u32) -> vec2<f32> {
  return vec2<f32>(1.0, 0.0);
}

// weight_octet is octet o, given its zero: of codes, the codes less zero.
fn weight_octet(o: u32, zero: f32) -> Octet {
  return Octet(bitcast<vec4<f32>>(w[2u * o]), bitcast<vec4<f32>>(w[2u * o + 1u]));
}

// weight_quad is quad b likewise.
fn weight_quad(b: u32, zero: f32) -> Quad {
  let o = 4u * b;
  return Quad(weight_octet(o, zero), weight_octet(o + 1u, zero), weight_octet(o + 2u, zero), weight_octet(o + 3u, zero));
}

// Raw is a quad before it is decoded: its bits where they are few and lie together, so that a kernel can read them before it waits
// for something else; here, where they are many, its index.
alias Raw = u32;

// weight_raw is quad b as it is stored.
fn weight_raw(b: u32) -> Raw {
  return b;
}

// raw_quad is weight_quad of what weight_raw has read.
fn raw_quad(r: Raw, zero: f32) -> Quad {
  return weight_quad(r, zero);
}
