// lib_weight_q8: 8-bit codes 0..255 with a scale and a zero point for GROUP weights of a row. The functions are
// explained in lib_weight_f32.wgsl.
//
// Layout   2 words an octet, element i of a word in bits 8i..8i+7. scales[row*K/GROUP + k/GROUP] has the scale in its
//          low half and the zero point in its high half, both IEEE half.
//
// Codes become floats without an integer conversion, which is slow on GPUs and, for unsigned numbers, on processors: code c
// in bits 15..22 of a float with exponent 2^8 is 256 + c exactly, and c - zero is one subtraction of 256 + zero.

const GROUP: u32 = 32u; // weights that share a scale: 8, 16, 32, 64 or 128

struct Octet { a: vec4<f32>, b: vec4<f32> }
struct Quad { o0: Octet, o1: Octet, o2: Octet, o3: Octet }

fn weight_scale(o: u32) -> vec2<f32> {
  return unpack2x16float(scales[o / (GROUP / 8u)]); // K is a multiple of GROUP, so rows need no care
}

fn decode_octet(lo: u32, hi: u32, zero: f32) -> Octet {
  let base = vec4<f32>(256.0 + zero);
  let mask = vec4<u32>(0x007F8000u);
  let one = vec4<u32>(0x43800000u); // 256.0
  let a = (vec4<u32>(lo << 15u, lo << 7u, lo >> 1u, lo >> 9u) & mask) | one;
  let b = (vec4<u32>(hi << 15u, hi << 7u, hi >> 1u, hi >> 9u) & mask) | one;
  return Octet(bitcast<vec4<f32>>(a) - base, bitcast<vec4<f32>>(b) - base);
}

fn weight_octet(o: u32, zero: f32) -> Octet {
  let c = (o & 1u) * 2u;
  return decode_octet(w[o >> 1u][c], w[o >> 1u][c + 1u], zero);
}

struct Raw { lo: vec4<u32>, hi: vec4<u32> }

fn weight_raw(b: u32) -> Raw {
  return Raw(w[2u * b], w[2u * b + 1u]);
}

fn raw_quad(q: Raw, zero: f32) -> Quad {
  return Quad(decode_octet(q.lo.x, q.lo.y, zero), decode_octet(q.lo.z, q.lo.w, zero),
              decode_octet(q.hi.x, q.hi.y, zero), decode_octet(q.hi.z, q.hi.w, zero));
}

fn weight_quad(b: u32, zero: f32) -> Quad {
  return raw_quad(weight_raw(b), zero);
}
