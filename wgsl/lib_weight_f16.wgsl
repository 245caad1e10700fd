// lib_weight_f16: weights stored as IEEE half. The functions are explained in lib_weight_f32.wgsl.
//
// Layout   4 words an octet, the even element in the low half of its word.

struct Octet { a: vec4<f32>, b: vec4<f32> }
struct Quad { o0: Octet, o1: Octet, o2: Octet, o3: Octet }

fn weight_scale(o: u32) -> vec2<f32> {
  return vec2<f32>(1.0, 0.0);
}

fn weight_octet(o: u32, zero: f32) -> Octet {
  let q = w[o];
  return Octet(vec4<f32>(unpack2x16float(q.x), unpack2x16float(q.y)),
               vec4<f32>(unpack2x16float(q.z), unpack2x16float(q.w)));
}

fn weight_quad(b: u32, zero: f32) -> Quad {
  let o = 4u * b;
  return Quad(weight_octet(o, zero), weight_octet(o + 1u, zero), weight_octet(o + 2u, zero), weight_octet(o + 3u, zero));
}
