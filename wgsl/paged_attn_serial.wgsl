// paged_attn_serial: attention over the paged KV cache without barriers, for software adapters: one invocation for a token
// and head, in prefill and in decode.
//
//   out[m,h] = sum over t <= position(m) of softmax_t(scale * dot(q[m,h], k[t,g])) * v[t,g],   g = h / (H/G)
//
// Four positions are taken at a time, so that the sums, which do not fit in registers, are read and written once for four.
//
// Shapes   M tokens, S sequences, H query heads, G KV heads (H a multiple of G), D = HEAD_DIM, N blocks of 16 tokens
//   tokens        [M] vec4<u32>                    read   (id, position, slot, sequence)
//   block_tables  [S, max_blocks] u32              read   entries past a sequence's end are never read
//   qkv           [M, row_stride] f32              read   the queries are the first H*D elements of a row
//   k_cache       [N, G, 16, D] by KV_TYPE         read   slots past a sequence's end are never read
//   v_cache       [N, G, 16, D] the same           read
//   out           [M, H*D] f32                     write
// Grid     ceil(M*H / WG) workgroups of WG, spread over x and y.
// Traffic  reads 4*D bytes (f16) of cache per position and head, writes 4*M*H*D.
// Storage  no workgroup memory; 4*D bytes for each invocation.
// Numerics online softmax in f32; within 2e-5 of ref over the values in the cache. A context has at most 262,140 positions:
//          Mesa 22 cuts loops after 65,535 rounds.
// Needs    lib_kv, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, PagedAttn.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 8u;         // invocations per workgroup
const HEAD_DIM: u32 = 128u; // D, a multiple of 16, at most 256
const KV_TYPE: u32 = 1u;    // of the cache: 0 f32, 1 f16, 2 int8 with scales

struct Params {
  heads: u32,      // H
  kv_heads: u32,   // G
  row_stride: u32, // elements of a row of qkv, a multiple of 4
  max_blocks: u32, // entries of a row of block_tables
  scale: f32,      // of the scores, D^-0.5
  pad0: u32,
  pad1: u32,
  pad2: u32,
}

struct Step {
  rows: u32, // M, the tokens that this step really has
  pad0: u32,
  pad1: u32,
  pad2: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read> tokens: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> block_tables: array<u32>;
@group(0) @binding(4) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> k_cache: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read> v_cache: array<vec4<u32>>;
@group(0) @binding(7) var<storage, read_write> out: array<vec4<f32>>;

const LOWEST: f32 = -3.4028234e38; // -FLT_MAX; WGSL has no infinity
const OCTETS: u32 = HEAD_DIM / 8u;
const VECS: u32 = HEAD_DIM / 4u;

fn dot_k(q: Octet, o: u32) -> f32 {
  let k = k_octet(o);
  return dot(q.a, k.a) + dot(q.b, k.b);
}

@compute @workgroup_size(WG)
fn paged_attn_serial(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
                     @builtin(local_invocation_index) tid: u32) {
  let mh = (wg.y * nwg.x + wg.x) * WG + tid;
  let m = mh / p.heads;
  if (m >= step.rows) {
    return;
  }
  let h = mh - m * p.heads;
  let g = h / (p.heads / p.kv_heads);
  let token = tokens[m];
  let n = token.y + 1u;
  let qo = m * p.row_stride / 4u + h * VECS;

  var acc: array<vec4<f32>, VECS>;
  for (var i = 0u; i < VECS; i += 1u) {
    acc[i] = vec4<f32>(0.0);
  }
  var largest = LOWEST;
  var total = 0.0;
  for (var t = 0u; t < n; t += 4u) {
    // Four positions lie in one block. Those past the end repeat the first one, with weight 0: no slot past the end is read.
    let o0 = kv_octet(token.w, t, g, p.kv_heads, p.max_blocks);
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
  for (var i = 0u; i < VECS; i += 1u) {
    out[mh * VECS + i] = acc[i] / total;
  }
}
