// lib_weight_ccq25: convolutional codes of 2.5 bits, 64 weights a group. The functions are explained in lib_weight_f32.wgsl; the
// kernel's Params have k.
//
// Layout   5 words a group, ten halves from the lower one of the first word on. Half h has windows of 3 bits at 13, 11, 9, 6, 4, 2
//          and 0, of the weights 7h .. 7h+6; half 9 that of weight 63, and the local scale in its low 13 bits. scales[row] has the
//          bits of the f32 super scale. A weight is (window - 4) * local * super.
//
// An octet lies in two halves. A window in bits 20..22 of a float with exponent 2^3 is 8 + it exactly.

const GROUP: u32 = 64u; // weights that share a local scale

struct Octet { a: vec4<f32>, b: vec4<f32> }
struct Quad { o0: Octet, o1: Octet, o2: Octet, o3: Octet }

// halves is the neighbouring halves i and i+1 of the words.
fn halves(i: u32) -> u32 {
  let lo = i >> 1u;
  let q = w[lo >> 2u][lo & 3u];
  if ((i & 1u) == 0u) {
    return q;
  }
  let hi = lo + 1u;
  return (q >> 16u) | (w[hi >> 2u][hi & 3u] << 16u);
}

fn weight_scale(o: u32) -> vec2<f32> {
  let at = 5u * (o / 8u) + 4u; // K is a multiple of GROUP, so rows need no care
  let local = (w[at >> 2u][at & 3u] >> 16u) & 0x1FFFu;
  return vec2<f32>(f32(local) * bitcast<f32>(scales[o / (p.k / 8u)]), 4.0);
}

// windows is four of them, of weights i of the halves q.
fn windows(q: u32, i: vec4<u32>, zero: f32) -> vec4<f32> {
  // The first three windows of a half lie one bit above where steps of two put them.
  let second = i >= vec4<u32>(7u);
  let place = select(i, i - vec4<u32>(7u), second);
  let shift = select(vec4<u32>(13u), vec4<u32>(12u), place >= vec4<u32>(3u)) - 2u * place + select(vec4<u32>(0u), vec4<u32>(16u), second);
  let bits = ((vec4<u32>(q) >> shift) & vec4<u32>(7u)) << vec4<u32>(20u);
  return bitcast<vec4<f32>>(bits | vec4<u32>(0x41000000u)) - vec4<f32>(8.0 + zero);
}

fn weight_octet(o: u32, zero: f32) -> Octet {
  let first = 8u * (o & 7u); // weight of the group
  let half = first / 7u;
  let i = vec4<u32>(first - 7u * half) + vec4<u32>(0u, 1u, 2u, 3u);
  let q = halves(10u * (o >> 3u) + half);
  return Octet(windows(q, i, zero), windows(q, i + vec4<u32>(4u), zero));
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
