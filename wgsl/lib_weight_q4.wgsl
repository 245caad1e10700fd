// lib_weight_q4: 4-bit codes 0..15 with a scale and a zero point for GROUP weights of a row. The functions are
// explained in lib_weight_f32.wgsl.
//
// Layout   1 word an octet, element i in bits 4i..4i+3. scales[row*K/GROUP + k/GROUP] has the scale in its low half and
//          the zero point in its high half, both IEEE half.
//
// Codes become floats without an integer conversion, which is slow on GPUs and, for unsigned numbers, on processors: code c
// in bits 19..22 of a float with exponent 2^4 is 16 + c exactly, and c - zero is one subtraction of 16 + zero.

const GROUP: u32 = 32u; // weights that share a scale: 8, 16, 32, 64 or 128

struct Octet { a: vec4<f32>, b: vec4<f32> }
struct Quad { o0: Octet, o1: Octet, o2: Octet, o3: Octet }

fn weight_scale(o: u32) -> vec2<f32> {
  return unpack2x16float(scales[o / (GROUP / 8u)]); // K is a multiple of GROUP, so rows need no care
}

fn decode_octet(q: u32, zero: f32) -> Octet {
  let base = vec4<f32>(16.0 + zero);
  let mask = vec4<u32>(0x00780000u);
  let one = vec4<u32>(0x41800000u); // 16.0
  let a = (vec4<u32>(q << 19u, q << 15u, q << 11u, q << 7u) & mask) | one;
  let b = (vec4<u32>(q << 3u, q >> 1u, q >> 5u, q >> 9u) & mask) | one;
  return Octet(bitcast<vec4<f32>>(a) - base, bitcast<vec4<f32>>(b) - base);
}

fn weight_octet(o: u32, zero: f32) -> Octet {
  return decode_octet(w[o >> 2u][o & 3u], zero);
}

alias Raw = vec4<u32>;

fn weight_raw(b: u32) -> Raw {
  return w[b];
}

fn raw_quad(q: Raw, zero: f32) -> Quad {
  return Quad(decode_octet(q.x, zero), decode_octet(q.y, zero), decode_octet(q.z, zero), decode_octet(q.w, zero));
}

fn weight_quad(b: u32, zero: f32) -> Quad {
  return raw_quad(weight_raw(b), zero);
}
