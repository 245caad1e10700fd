// lib_weight_bf16: weights stored as the upper half of an f32. The functions are explained in lib_weight_f32.wgsl.
//
// Layout   4 words an octet, the even element in the low half of its word.

struct Octet { a: vec4<f32>, b: vec4<f32> }
struct Quad { o0: Octet, o1: Octet, o2: Octet, o3: Octet }

fn weight_scale(o: u32) -> vec2<f32> {
  return vec2<f32>(1.0, 0.0);
}

fn decode_words(q: vec4<u32>) -> Octet {
  let even = bitcast<vec4<f32>>(q << vec4<u32>(16u));
  let odd = bitcast<vec4<f32>>(q & vec4<u32>(0xFFFF0000u));
  return Octet(vec4<f32>(even.x, odd.x, even.y, odd.y), vec4<f32>(even.z, odd.z, even.w, odd.w));
}

fn weight_octet(o: u32, zero: f32) -> Octet {
  return decode_words(w[o]);
}

struct Raw { o0: vec4<u32>, o1: vec4<u32>, o2: vec4<u32>, o3: vec4<u32> }

fn weight_raw(b: u32) -> Raw {
  let o = 4u * b;
  return Raw(w[o], w[o + 1u], w[o + 2u], w[o + 3u]);
}

fn raw_quad(q: Raw, zero: f32) -> Quad {
  return Quad(decode_words(q.o0), decode_words(q.o1), decode_words(q.o2), decode_words(q.o3));
}

fn weight_quad(b: u32, zero: f32) -> Quad {
  return raw_quad(weight_raw(b), zero);
}
