// lib_weight_f8: 8-bit floats e4m3fn with an f32 scale for GROUP weights of a row. The functions are explained in
// lib_weight_f32.wgsl.
//
// Layout   2 words an octet, element i of a word in bits 8i..8i+7: a sign, four bits of exponent biased by 7, three of mantissa.
//          scales[row*K/GROUP + k/GROUP] has the bits of the scale. NaNs do not occur.
//
// Exponent and mantissa shifted to where f32 has them, with 120 added to the exponent, are the number, but for exponent 0: there the
// mantissa has no leading 1, and (1 + m/8)*2^-7 stands for m*2^-9. No number of the way is below the normal ones, which devices
// may flush to zero.

const GROUP: u32 = 32u; // weights that share a scale: 8, 16, 32, 64 or 128

struct Octet { a: vec4<f32>, b: vec4<f32> }
struct Quad { o0: Octet, o1: Octet, o2: Octet, o3: Octet }

fn weight_scale(o: u32) -> vec2<f32> {
  return vec2<f32>(bitcast<f32>(scales[o / (GROUP / 8u)]), 0.0); // K is a multiple of GROUP, so rows need no care
}

fn decode_word(q: u32) -> vec4<f32> {
  let code = vec4<u32>(q << 24u, q << 16u, q << 8u, q); // in the upper byte
  let bits = (code & vec4<u32>(0x7F000000u)) >> vec4<u32>(4u);
  let normal = bitcast<vec4<f32>>(bits + vec4<u32>(0x3C000000u)); // 120 << 23
  let size = select(normal, 2.0 * normal - vec4<f32>(0.015625), bits < vec4<u32>(0x00800000u));
  return bitcast<vec4<f32>>(bitcast<vec4<u32>>(size) | (code & vec4<u32>(0x80000000u)));
}

fn weight_octet(o: u32, zero: f32) -> Octet {
  let c = (o & 1u) * 2u;
  return Octet(decode_word(w[o >> 1u][c]), decode_word(w[o >> 1u][c + 1u]));
}

struct Raw { lo: vec4<u32>, hi: vec4<u32> }

fn weight_raw(b: u32) -> Raw {
  return Raw(w[2u * b], w[2u * b + 1u]);
}

fn raw_quad(q: Raw, zero: f32) -> Quad {
  return Quad(Octet(decode_word(q.lo.x), decode_word(q.lo.y)), Octet(decode_word(q.lo.z), decode_word(q.lo.w)),
              Octet(decode_word(q.hi.x), decode_word(q.hi.y)), Octet(decode_word(q.hi.z), decode_word(q.hi.w)));
}

fn weight_quad(b: u32, zero: f32) -> Quad {
  return raw_quad(weight_raw(b), zero);
}
