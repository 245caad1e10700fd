// lib_weight_ccq275: convolutional codes of 2.75 bits, 64 weights a group. The functions are explained in lib_weight_f32.wgsl; the
// kernel's Params have k.
//
// Layout   22 bytes a group, each row from a word on. Byte b has windows of 4 bits at 4, 2 and 0, of the weights 3b, 3b+1 and 3b+2;
//          byte 21 that of weight 63, and the local scale in its low nibble. scales[row] has the bits of the f32 super scale.
//          A weight is (window - 8) * local * super.
//
// An octet lies in four bytes at most. A window in bits 19..22 of a float with exponent 2^4 is 16 + it exactly.

const GROUP: u32 = 64u; // weights that share a local scale

struct Octet { a: vec4<f32>, b: vec4<f32> }
struct Quad { o0: Octet, o1: Octet, o2: Octet, o3: Octet }

fn row_words() -> u32 {
  return (22u * (p.k / GROUP) + 3u) / 4u;
}

// bytes is the four bytes from byte i of a row on, as far as they belong to it.
fn bytes(row: u32, i: u32) -> u32 {
  let words = row_words();
  let at = i >> 2u;
  let lo = row * words + at;
  let hi = row * words + min(at + 1u, words - 1u);
  let shift = 8u * (i & 3u);
  // A shift by 32 is none at all, so the upper word takes two.
  return (w[lo >> 2u][lo & 3u] >> shift) | ((w[hi >> 2u][hi & 3u] << 8u) << (24u - shift));
}

fn weight_scale(o: u32) -> vec2<f32> {
  let octets = p.k / 8u;
  let row = o / octets;
  let local = bytes(row, 22u * ((o - row * octets) / 8u) + 21u) & 15u;
  return vec2<f32>(f32(local) * bitcast<f32>(scales[row]), 8.0);
}

// windows is four of them, at the shifts of weights i of the byte that q begins with.
fn windows(q: u32, i: vec4<u32>, zero: f32) -> vec4<f32> {
  let byte = (i * 11u) >> vec4<u32>(5u); // i/3, for i up to 10
  let shift = 14u * byte + vec4<u32>(4u) - 2u * i;
  let bits = ((vec4<u32>(q) >> shift) & vec4<u32>(15u)) << vec4<u32>(19u);
  return bitcast<vec4<f32>>(bits | vec4<u32>(0x41800000u)) - vec4<f32>(16.0 + zero);
}

fn decode_octet(row: u32, o: u32, zero: f32) -> Octet {
  let first = 8u * (o & 7u); // weight of the group
  let byte = first / 3u;
  let i = vec4<u32>(first - 3u * byte) + vec4<u32>(0u, 1u, 2u, 3u);
  let q = bytes(row, 22u * (o >> 3u) + byte);
  return Octet(windows(q, i, zero), windows(q, i + vec4<u32>(4u), zero));
}

fn weight_octet(o: u32, zero: f32) -> Octet {
  let octets = p.k / 8u;
  let row = o / octets;
  return decode_octet(row, o - row * octets, zero);
}

fn weight_quad(b: u32, zero: f32) -> Quad {
  let octets = p.k / 8u;
  let row = 4u * b / octets;
  let o = 4u * b - row * octets;
  return Quad(decode_octet(row, o, zero), decode_octet(row, o + 1u, zero),
              decode_octet(row, o + 2u, zero), decode_octet(row, o + 3u, zero));
}

alias Raw = u32;

fn weight_raw(b: u32) -> Raw {
  return b;
}

fn raw_quad(r: Raw, zero: f32) -> Quad {
  return weight_quad(r, zero);
}
