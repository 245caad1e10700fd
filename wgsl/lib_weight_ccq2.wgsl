// lib_weight_ccq2: convolutional codes of 2 bits, 64 weights a group. The functions are explained in lib_weight_f32.wgsl; the
// kernel's Params have k.
//
// Layout   4 words a group. Byte b stands for the code floor(b*line + offset + 0.5), which has windows of 6 bits at 9, 6, 3 and 0, of the
//          weights 4b .. 4b+3. Scales of a row: the bits of f32 super scale, line and offset, then a nibble of local scale a group,
//          the lowest first. A weight is (window - 32) * local * super.
//
// A window in bits 17..22 of a float with exponent 2^6 is 64 + it exactly.

const GROUP: u32 = 64u; // weights that share a local scale

struct Octet { a: vec4<f32>, b: vec4<f32> }
struct Quad { o0: Octet, o1: Octet, o2: Octet, o3: Octet }

// row_scales is where the scales of a row begin.
fn row_scales(row: u32) -> u32 {
  return row * (3u + (p.k / GROUP + 7u) / 8u);
}

fn weight_scale(o: u32) -> vec2<f32> {
  let octets = p.k / 8u;
  let row = o / octets;
  let group = (o - row * octets) / 8u;
  let at = row_scales(row);
  let local = (scales[at + 3u + group / 8u] >> (4u * (group & 7u))) & 15u;
  return vec2<f32>(f32(local) * bitcast<f32>(scales[at]), 32.0);
}

fn windows(byte: u32, line: vec2<f32>, zero: f32) -> vec4<f32> {
  let code = bitcast<u32>(i32(floor(f32(byte) * line.x + line.y + 0.5)));
  let bits = vec4<u32>(code << 8u, code << 11u, code << 14u, code << 17u) & vec4<u32>(0x007E0000u);
  return bitcast<vec4<f32>>(bits | vec4<u32>(0x42800000u)) - vec4<f32>(64.0 + zero);
}

fn weight_octet(o: u32, zero: f32) -> Octet {
  let at = row_scales(o / (p.k / 8u));
  let line = bitcast<vec2<f32>>(vec2<u32>(scales[at + 1u], scales[at + 2u]));
  let half = o >> 1u;
  let q = w[half >> 2u][half & 3u] >> (16u * (o & 1u));
  return Octet(windows(q & 255u, line, zero), windows((q >> 8u) & 255u, line, zero));
}

fn weight_quad(b: u32, zero: f32) -> Quad {
  let o = 4u * b;
  return Quad(weight_octet(o, zero), weight_octet(o + 1u, zero), weight_octet(o + 2u, zero), weight_octet(o + 3u, zero));
}

alias Raw = u32;

fn weight_raw(b: u32) -> Raw {
  return b;
}

fn raw_quad(r: Raw, zero: f32) -> Quad {
  return weight_quad(r, zero);
}
