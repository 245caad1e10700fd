// lib_weight_iq4: 4-bit indices into 16 fixed numbers, with a scale for GROUP weights of a row. The functions are explained in
// lib_weight_f32.wgsl.
//
// Layout   That of lib_weight_q4; zero points are 0.
//
// The numbers, -127 .. 113, are bytes of four words, 128 added. Selecting one with masks keeps the table in registers, where it
// can be indexed. A byte in bits 15..22 of a float with exponent 2^8 is 256 + it exactly.

const GROUP: u32 = 32u; // weights that share a scale

struct Octet { a: vec4<f32>, b: vec4<f32> }
struct Quad { o0: Octet, o1: Octet, o2: Octet, o3: Octet }

fn weight_scale(o: u32) -> vec2<f32> {
  return unpack2x16float(scales[o / (GROUP / 8u)]);
}

// numbers is what four indices stand for.
fn numbers(i: vec4<u32>, zero: f32) -> vec4<f32> {
  let upper = (i & vec4<u32>(4u)) != vec4<u32>(0u);
  // ggml's kvalues_iq4nl: -127 -104 -83 -65 | -49 -35 -22 -10 | 1 13 25 38 | 53 69 89 113
  let negative = select(vec4<u32>(0x3F2D1801u), vec4<u32>(0x766A5D4Fu), upper);
  let positive = select(vec4<u32>(0xA6998D81u), vec4<u32>(0xF1D9C5B5u), upper);
  let four = select(negative, positive, (i & vec4<u32>(8u)) != vec4<u32>(0u));
  let one = (four >> ((i & vec4<u32>(3u)) * 8u)) & vec4<u32>(0xFFu);
  return bitcast<vec4<f32>>((one << vec4<u32>(15u)) | vec4<u32>(0x43800000u)) - vec4<f32>(384.0 + zero);
}

fn decode_octet(q: u32, zero: f32) -> Octet {
  let mask = vec4<u32>(15u);
  return Octet(numbers(vec4<u32>(q, q >> 4u, q >> 8u, q >> 12u) & mask, zero),
               numbers(vec4<u32>(q >> 16u, q >> 20u, q >> 24u, q >> 28u) & mask, zero));
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
