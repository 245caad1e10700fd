// lib_attn_serial: one invocation's walk over a part of a context, for the attention kernels without barriers. They bind what
// lib_kv needs, `qkv` as array<vec4<f32>>, and Params with max_blocks, kv_heads and scale.

const LOWEST: f32 = -3.4028234e38; // -FLT_MAX; WGSL has no infinity
const OCTETS: u32 = HEAD_DIM / 8u;
const VECS: u32 = HEAD_DIM / 4u;

var<private> acc: array<vec4<f32>, VECS>; // sums of the values, each by its exponential
var<private> largest: f32;                // score
var<private> total: f32;                  // sum of the exponentials, relative to the largest

fn dot_k(q: Octet, o: u32) -> f32 {
  let k = k_octet(o);
  return dot(q.a, k.a) + dot(q.b, k.b);
}

// attend walks over the positions begin..n-1 of sequence seq for KV head g, with the query at qkv[qo]. begin is a multiple of 4.
fn attend(seq: u32, g: u32, qo: u32, begin: u32, n: u32) {
  for (var i = 0u; i < VECS; i += 1u) {
    acc[i] = vec4<f32>(0.0);
  }
  largest = LOWEST;
  total = 0.0;
  for (var t = begin; t < n; t += 4u) {
    // Four positions lie in one block. Those past the end repeat the first one, with weight 0: no slot past the end is read.
    let o0 = kv_octet(seq, t, g, p.kv_heads, p.max_blocks);
    let o1 = select(o0, o0 + OCTETS, t + 1u < n);
    let o2 = select(o0, o0 + 2u * OCTETS, t + 2u < n);
    let o3 = select(o0, o0 + 3u * OCTETS, t + 3u < n);
    var s = vec4<f32>(0.0);
    for (var i = 0u; i < OCTETS; i += 1u) {
      let q = Octet(qkv[qo + 2u * i], qkv[qo + 2u * i + 1u]);
      s += vec4<f32>(dot_k(q, o0 + i), dot_k(q, o1 + i), dot_k(q, o2 + i), dot_k(q, o3 + i));
    }
    s *= p.scale * vec4<f32>(k_scale(o0), k_scale(o1), k_scale(o2), k_scale(o3));
    let now = max(largest, max(max(s.x, s.y), max(s.z, s.w)));
    let shrink = exp(largest - now);
    largest = now;
    let seen = vec4<bool>(true, t + 1u < n, t + 2u < n, t + 3u < n);
    let weight = select(vec4<f32>(0.0), exp(s - vec4<f32>(now)), seen);
    total = total * shrink + ((weight.x + weight.y) + (weight.z + weight.w));
    let w = weight * vec4<f32>(v_scale(o0), v_scale(o1), v_scale(o2), v_scale(o3));
    for (var i = 0u; i < OCTETS; i += 1u) {
      let v0 = v_octet(o0 + i);
      let v1 = v_octet(o1 + i);
      let v2 = v_octet(o2 + i);
      let v3 = v_octet(o3 + i);
      acc[2u * i] = acc[2u * i] * shrink + ((w.x * v0.a + w.y * v1.a) + (w.z * v2.a + w.w * v3.a));
      acc[2u * i + 1u] = acc[2u * i + 1u] * shrink + ((w.x * v0.b + w.y * v1.b) + (w.z * v2.b + w.w * v3.b));
    }
  }
}
