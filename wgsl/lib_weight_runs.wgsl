// lib_weight_runs: codes of 2 to 6 bits with scales in one of three forms. The functions are explained in lib_weight_f32.wgsl.
//
// Layout   A quad has BITS words: first the low bits of the codes, four for BITS of 4 and more, else two, the weights in order
//          from bit 0 on; then the high bits, two for BITS of 6, one for 3 and 5, likewise. Scales, by SCALES:
//            0  scales[k/GROUP] has a scale in its low half and a zero point in its high half, both IEEE half; the scale is
//               left to the caller
//            1  the same with a minimum instead of a zero point: a weight is code*scale + minimum
//            2  for each 256 weights a word of d and dmin, both IEEE half, and two groups to a word after it, in each half a signed
//               byte sc and above it a signed byte mc: a weight is (d*sc)*code - dmin*mc
//
// Codes become floats without an integer conversion: a code in the upper bits of the mantissa of 8.0 or 64.0 is added to it.

const GROUP: u32 = 32u; // weights that share a scale: 16, 32, 64 or 128
const BITS: u32 = 4u;   // of a code
const SCALES: u32 = 1u; // form of the scales

struct Octet { a: vec4<f32>, b: vec4<f32> }
struct Quad { o0: Octet, o1: Octet, o2: Octet, o3: Octet }

fn weight_scale(o: u32) -> vec2<f32> {
  if (SCALES == 0u) {
    return unpack2x16float(scales[o / (GROUP / 8u)]); // K is a multiple of GROUP, so rows need no care
  }
  return vec2<f32>(1.0, 0.0);
}

// lines is, twice, (factor, offset): what octet o holds is factor*code + offset, with the first two. The others are those of the
// group after it, if o is the first octet of a quad and its groups are smaller.
fn lines(o: u32, zero: f32) -> vec4<f32> {
  if (SCALES == 0u) {
    return vec4<f32>(1.0, -zero, 1.0, -zero);
  }
  if (SCALES == 1u) {
    let l = unpack2x16float(scales[o / (GROUP / 8u)]);
    return vec4<f32>(l, l);
  }
  let block = (o / 32u) * (1u + 128u / GROUP); // K is a multiple of 256
  let d = unpack2x16float(scales[block]);
  let group = (o % 32u) / (GROUP / 8u);
  let pair = scales[block + 1u + group / 2u];
  let q = pair >> (16u * (group & 1u));
  let l = vec2<f32>(f32(bitcast<i32>(q << 24u) >> 24u), -f32(bitcast<i32>(q << 16u) >> 24u)) * d;
  if (GROUP == 16u) {
    return vec4<f32>(l, vec2<f32>(f32(bitcast<i32>(pair << 8u) >> 24u), -f32(bitcast<i32>(pair) >> 24u)) * d);
  }
  return vec4<f32>(l, l);
}

fn word(i: u32) -> u32 {
  return w[i >> 2u][i & 3u];
}

// decode_octet decodes 8 codes, whose low and high bits begin at bit 0 of their words.
fn decode_octet(q: u32, h: u32, l: vec2<f32>) -> Octet {
  var a: vec4<u32>;
  var b: vec4<u32>;
  var base = 8.0;
  if (BITS < 4u) { // low bits to 20 and 21, the high one to 22
    let mask = vec4<u32>(0x00300000u);
    a = vec4<u32>(q << 20u, q << 18u, q << 16u, q << 14u) & mask;
    b = vec4<u32>(q << 12u, q << 10u, q << 8u, q << 6u) & mask;
    if (BITS == 3u) {
      let top = vec4<u32>(0x00400000u);
      a |= vec4<u32>(h << 22u, h << 21u, h << 20u, h << 19u) & top;
      b |= vec4<u32>(h << 18u, h << 17u, h << 16u, h << 15u) & top;
    }
    a |= vec4<u32>(0x41000000u);
    b |= vec4<u32>(0x41000000u);
  } else { // low bits to 17 .. 20, high ones to 21 and 22
    let mask = vec4<u32>(0x001E0000u);
    a = vec4<u32>(q << 17u, q << 13u, q << 9u, q << 5u) & mask;
    b = vec4<u32>(q << 1u, q >> 3u, q >> 7u, q >> 11u) & mask;
    if (BITS == 5u) {
      let top = vec4<u32>(0x00200000u);
      a |= vec4<u32>(h << 21u, h << 20u, h << 19u, h << 18u) & top;
      b |= vec4<u32>(h << 17u, h << 16u, h << 15u, h << 14u) & top;
    }
    if (BITS == 6u) {
      let top = vec4<u32>(0x00600000u);
      a |= vec4<u32>(h << 21u, h << 19u, h << 17u, h << 15u) & top;
      b |= vec4<u32>(h << 13u, h << 11u, h << 9u, h << 7u) & top;
    }
    a |= vec4<u32>(0x42800000u);
    b |= vec4<u32>(0x42800000u);
    base = 64.0;
  }
  let codes_a = bitcast<vec4<f32>>(a) - vec4<f32>(base); // exact
  let codes_b = bitcast<vec4<f32>>(b) - vec4<f32>(base);
  return Octet(codes_a * l.x + vec4<f32>(l.y), codes_b * l.x + vec4<f32>(l.y));
}

fn weight_octet(o: u32, zero: f32) -> Octet {
  let at = (o >> 2u) * BITS;
  let c = o & 3u;
  var q = 0u;
  var h = 0u;
  if (BITS < 4u) {
    q = word(at + (c >> 1u)) >> (16u * (c & 1u));
  } else {
    q = word(at + c);
  }
  if (BITS == 3u) {
    h = word(at + 2u) >> (8u * c);
  }
  if (BITS == 5u) {
    h = word(at + 4u) >> (8u * c);
  }
  if (BITS == 6u) {
    h = word(at + 4u + (c >> 1u)) >> (16u * (c & 1u));
  }
  return decode_octet(q, h, lines(o, zero).xy);
}

fn weight_quad(b: u32, zero: f32) -> Quad {
  let at = b * BITS;
  let l = lines(4u * b, zero);
  var q: vec4<u32>; // low bits of the octets
  var h: vec4<u32>; // high ones
  if (BITS < 4u) {
    let lo = word(at);
    let hi = word(at + 1u);
    q = vec4<u32>(lo, lo >> 16u, hi, hi >> 16u);
  } else if (BITS == 4u) {
    q = w[b];
  } else {
    q = vec4<u32>(word(at), word(at + 1u), word(at + 2u), word(at + 3u));
  }
  if (BITS == 3u || BITS == 5u) {
    let top = word(at + BITS - 1u);
    h = vec4<u32>(top, top >> 8u, top >> 16u, top >> 24u);
  }
  if (BITS == 6u) {
    let lo = word(at + 4u);
    let hi = word(at + 5u);
    h = vec4<u32>(lo, lo >> 16u, hi, hi >> 16u);
  }
  return Quad(decode_octet(q.x, h.x, l.xy), decode_octet(q.y, h.y, l.xy),
              decode_octet(q.z, h.z, l.zw), decode_octet(q.w, h.w, l.zw));
}

alias Raw = u32;

fn weight_raw(b: u32) -> Raw {
  return b;
}

fn raw_quad(r: Raw, zero: f32) -> Quad {
  return weight_quad(r, zero);
}
