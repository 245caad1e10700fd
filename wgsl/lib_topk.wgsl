// lib_topk: the order in which tokens are candidates, for kernels that bind `draws` as array<vec4<u32>>.
//
// A draw is (bits of 1/temperature, 0 or 1, low and high half of a key). With 0 tokens come by their logits, of equals the
// lower id first. With 1 they come by their times of arrival in a race that each wins with its probability: by
// logit/temperature - log(-log(u)), u a random number in (0, 1] that the key and the id give (internal/sample, race). 64-bit
// integers are pairs of halves, the low one first.

const NONE: u32 = 0xFFFFFFFFu; // no id
const SIGN: u32 = 0x80000000u;

// order maps the bits of a float to an integer that compares like the float. A NaN is above all, -0 equals 0.
fn order(b: u32) -> u32 {
  let bits = select(b, 0u, b == SIGN);
  let o = select(bits | SIGN, ~bits, bits >= SIGN);
  return select(o, NONE, (bits & 0x7FFFFFFFu) > 0x7F800000u);
}

// better is the winner of two candidates (order, id): the larger order, then the lower id.
fn better(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(a, b, b.x > a.x || (b.x == a.x && b.y < a.y));
}

// decay is exp(x) for x <= 0, but never less than exp(-80), so that infinities do no harm.
fn decay(x: f32) -> f32 {
  return exp(max(x, -80.0));
}

fn add64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let lo = a.x + b.x;
  return vec2<u32>(lo, a.y + b.y + select(0u, 1u, lo < a.x));
}

fn mul64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let a0 = a.x & 0xFFFFu;
  let a1 = a.x >> 16u;
  let b0 = b.x & 0xFFFFu;
  let b1 = b.x >> 16u;
  let p01 = a0 * b1;
  let p10 = a1 * b0;
  let mid = ((a0 * b0) >> 16u) + (p01 & 0xFFFFu) + (p10 & 0xFFFFu);
  let hi = a1 * b1 + (p01 >> 16u) + (p10 >> 16u) + (mid >> 16u);
  return vec2<u32>(a.x * b.x, hi + a.x * b.y + a.y * b.x);
}

// xor_shift is x ^ x >> n, for n below 32.
fn xor_shift(x: vec2<u32>, n: u32) -> vec2<u32> {
  return vec2<u32>(x.x ^ ((x.x >> n) | (x.y << (32u - n))), x.y ^ (x.y >> n));
}

// random is output id of the SplitMix64 stream that key starts.
fn random(key: vec2<u32>, id: u32) -> vec2<u32> {
  let golden = vec2<u32>(0x7F4A7C15u, 0x9E3779B9u);
  var x = add64(add64(key, mul64(golden, vec2<u32>(id, 0u))), golden);
  x = mul64(xor_shift(x, 30u), vec2<u32>(0x1CE4E5B9u, 0xBF58476Du));
  x = mul64(xor_shift(x, 27u), vec2<u32>(0x133111EBu, 0x94D049BBu));
  return xor_shift(x, 31u);
}

// lead is -log(-log(u)) for u = (the upper 53 bits + 1) * 2^-53, or 100 for u = 1. Near 1, where winners are, it is computed
// from 1 - u: no bit of that is lost.
fn lead(bits: vec2<u32>) -> f32 {
  let v = f32(~bits.y) * 2.3283064365386963e-10 + f32((~bits.x) >> 11u) * 1.1102230246251565e-16;
  if (v == 0.0) {
    return 100.0;
  }
  var q = v * (1.0 + v * (0.5 + v * (0.33333334 + v * (0.25 + v * (0.2 + v * (0.16666667 + v * (0.14285714 + v * 0.125)))))));
  if (v >= 0.25) {
    q = -log(f32(bits.y) * 2.3283064365386963e-10 + f32((bits.x >> 11u) + 1u) * 1.1102230246251565e-16);
  }
  return -log(q);
}

// score is the order of a token with this logit.
fn score(draw: vec4<u32>, bits: u32, id: u32) -> u32 {
  if (draw.y == 0u) {
    return order(bits);
  }
  if ((bits & 0x7FFFFFFFu) >= 0x7F800000u) { // an infinity keeps its place whatever it draws
    return order(bits);
  }
  return order(bitcast<u32>(bitcast<f32>(bits) * bitcast<f32>(draw.x) + lead(random(draw.zw, id))));
}
