// paged_attn_serial: attention over the paged KV cache without barriers, for software adapters: one invocation for a token, a
// partition of its context, and up to three query heads of a KV head; in prefill and in decode.
//
//   out[m,h] = sum over t <= position(m) of softmax_t(scale * dot(q[m,h], k[t,g])) * v[t,g],   g = h / (H/G)
//
// Loads are what costs on a processor: each of a key or value serves all query heads of the invocation. Four positions are
// taken at a time, so that the sums, which do not fit in registers, are read and written once for four.
//
// Partition i has the positions [i*PART, (i+1)*PART). With SPLIT = 1 each writes what paged_attn_reduce combines; with SPLIT = 0
// there is one. A dispatch computes the tokens row0..row0+rows-1 of the step, R at most.
//
// Shapes   M tokens, S sequences, H query heads, G KV heads (H a multiple of G), D = HEAD_DIM, N blocks of 16 tokens
//   tokens        [M] vec4<u32>                    read   (id, position, slot, sequence)
//   block_tables  [S, max_blocks] u32              read   entries past a sequence's end are never read
//   qkv           [M, row_stride] f32              read   the queries are the first H*D elements of a row
//   k_cache       [N, G, 16, D] by KV_TYPE         read   slots past a sequence's end are never read
//   v_cache       [N, G, 16, D] the same           read
//   out           [M, H*D] f32                     write  with SPLIT [R, H, parts, D+4]: D sums, the largest score, the sum of
//                                                         exponentials, two unused; a partition without tokens writes the
//                                                         last four only
// Grid     ceil(R*G*ceil(H/G/HEADS) / WG) workgroups of WG over x and y, parts in z.
// Traffic  reads 4*D bytes (f16) of cache per position and HEADS heads, writes 4*M*H*D.
// Storage  no workgroup memory; 4*D*HEADS bytes for each invocation.
// Numerics online softmax in f32; within 2e-5 of ref over the values in the cache. Mesa 22 ends loops without a word when an
//          invocation has been through 65,535 rounds of all its loops together: PART positions of any D take fewer.
// Needs    lib_kv, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, PagedAttn.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 8u;         // invocations per workgroup
const HEADS: u32 = 1u;      // query heads per invocation, 1 to 3
const SPLIT: u32 = 0u;      // 1: write partitions
const PART: u32 = 2048u;    // positions of a partition, a multiple of 4
const HEAD_DIM: u32 = 128u; // D, a multiple of 16, at most 256
const KV_TYPE: u32 = 1u;    // of the cache: 0 f32, 1 f16, 2 int8 with scales

struct Params {
  heads: u32,      // H
  kv_heads: u32,   // G
  row_stride: u32, // elements of a row of qkv, a multiple of 4
  max_blocks: u32, // entries of a row of block_tables
  scale: f32,      // of the scores, D^-0.5
  parts: u32,      // partitions of a context: 1, or enough for the longest
  row0: u32,       // first token of this dispatch
  rows: u32,       // most tokens of this dispatch
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

// Four is one octet of keys or values at four positions.
struct Four { o0: Octet, o1: Octet, o2: Octet, o3: Octet }

// Softmax is where a query head is, and what the four positions of a round weigh.
struct Softmax { largest: f32, total: f32, shrink: f32, weight: vec4<f32> }

fn dots(qo: u32, k: Four) -> vec4<f32> {
  let a = qkv[qo];
  let b = qkv[qo + 1u];
  return vec4<f32>(dot(a, k.o0.a) + dot(b, k.o0.b), dot(a, k.o1.a) + dot(b, k.o1.b),
                   dot(a, k.o2.a) + dot(b, k.o2.b), dot(a, k.o3.a) + dot(b, k.o3.b));
}

fn advance(was: Softmax, s: vec4<f32>, seen: vec4<bool>) -> Softmax {
  let now = max(was.largest, max(max(s.x, s.y), max(s.z, s.w)));
  let shrink = exp(was.largest - now);
  let weight = select(vec4<f32>(0.0), exp(s - vec4<f32>(now)), seen);
  return Softmax(now, was.total * shrink + ((weight.x + weight.y) + (weight.z + weight.w)), shrink, weight);
}

fn mix4(w: vec4<f32>, a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) -> vec4<f32> {
  return (w.x * a + w.y * b) + (w.z * c + w.w * d);
}

// record is where the sums of a head begin, in vectors.
fn record(m: u32, h: u32, part: u32) -> u32 {
  if (SPLIT == 1u) {
    return (((m - p.row0) * p.heads + h) * p.parts + part) * (VECS + 1u);
  }
  return (m * p.heads + h) * VECS;
}

fn put(at: u32, sum: vec4<f32>, total: f32) {
  out[at] = select(sum, sum / total, SPLIT == 0u);
}

// finish writes how a head ended, for paged_attn_reduce.
fn finish(at: u32, largest: f32, total: f32) {
  if (SPLIT == 1u) {
    out[at + VECS] = vec4<f32>(largest, total, 0.0, 0.0);
  }
}

@compute @workgroup_size(WG)
fn paged_attn_serial(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
                     @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * nwg.x + wg.x) * WG + tid;
  let group = p.heads / p.kv_heads;        // query heads of a KV head
  let per_kv = (group + HEADS - 1u) / HEADS; // invocations for them
  let units = p.kv_heads * per_kv;
  let m = p.row0 + i / units;
  if (i / units >= p.rows || m >= step.rows) {
    return;
  }
  let unit = i % units;
  let g = unit / per_kv;
  let within = unit % per_kv * HEADS;
  let h = g * group + within;
  let spare = min(HEADS, group - within) - 1u; // heads after the first
  let token = tokens[m];
  let first = wg.z * PART;
  let n = min(token.y + 1u, first + PART);
  // Heads past the last one repeat it, and are not written.
  let h1 = h + min(1u, spare);
  let h2 = h + min(2u, spare);
  let row = m * p.row_stride / 4u;
  let r0 = record(m, h, wg.z);
  let r1 = record(m, h1, wg.z);
  let r2 = record(m, h2, wg.z);
  if (first >= n) {
    finish(r0, LOWEST, 0.0);
    finish(r1, LOWEST, 0.0);
    finish(r2, LOWEST, 0.0);
    return;
  }

  var acc0: array<vec4<f32>, VECS>; // of head h; those that HEADS leaves out vanish
  var acc1: array<vec4<f32>, VECS>;
  var acc2: array<vec4<f32>, VECS>;
  for (var c = 0u; c < VECS; c += 1u) {
    acc0[c] = vec4<f32>(0.0);
    acc1[c] = vec4<f32>(0.0);
    acc2[c] = vec4<f32>(0.0);
  }
  var soft0 = Softmax(LOWEST, 0.0, 0.0, vec4<f32>(0.0));
  var soft1 = Softmax(LOWEST, 0.0, 0.0, vec4<f32>(0.0));
  var soft2 = Softmax(LOWEST, 0.0, 0.0, vec4<f32>(0.0));
  for (var t = first; t < n; t += 4u) {
    // Four positions lie in one block. Those past the end repeat the first one, with weight 0: no slot past the end is read.
    let seen = vec4<bool>(true, t + 1u < n, t + 2u < n, t + 3u < n);
    let o0 = kv_octet(token.w, t, g, p.kv_heads, p.max_blocks);
    let o1 = select(o0, o0 + OCTETS, seen.y);
    let o2 = select(o0, o0 + 2u * OCTETS, seen.z);
    let o3 = select(o0, o0 + 3u * OCTETS, seen.w);
    var s0 = vec4<f32>(0.0);
    var s1 = vec4<f32>(0.0);
    var s2 = vec4<f32>(0.0);
    for (var c = 0u; c < OCTETS; c += 1u) {
      let k = Four(k_octet(o0 + c), k_octet(o1 + c), k_octet(o2 + c), k_octet(o3 + c));
      s0 += dots(row + h * VECS + 2u * c, k);
      if (HEADS > 1u) {
        s1 += dots(row + h1 * VECS + 2u * c, k);
      }
      if (HEADS > 2u) {
        s2 += dots(row + h2 * VECS + 2u * c, k);
      }
    }
    let scale = p.scale * vec4<f32>(k_scale(o0), k_scale(o1), k_scale(o2), k_scale(o3));
    let v_scales = vec4<f32>(v_scale(o0), v_scale(o1), v_scale(o2), v_scale(o3));
    soft0 = advance(soft0, s0 * scale, seen);
    soft1 = advance(soft1, s1 * scale, seen);
    soft2 = advance(soft2, s2 * scale, seen);
    let w0 = soft0.weight * v_scales;
    let w1 = soft1.weight * v_scales;
    let w2 = soft2.weight * v_scales;
    for (var c = 0u; c < OCTETS; c += 1u) {
      let v = Four(v_octet(o0 + c), v_octet(o1 + c), v_octet(o2 + c), v_octet(o3 + c));
      let at = 2u * c;
      acc0[at] = acc0[at] * soft0.shrink + mix4(w0, v.o0.a, v.o1.a, v.o2.a, v.o3.a);
      acc0[at + 1u] = acc0[at + 1u] * soft0.shrink + mix4(w0, v.o0.b, v.o1.b, v.o2.b, v.o3.b);
      if (HEADS > 1u) {
        acc1[at] = acc1[at] * soft1.shrink + mix4(w1, v.o0.a, v.o1.a, v.o2.a, v.o3.a);
        acc1[at + 1u] = acc1[at + 1u] * soft1.shrink + mix4(w1, v.o0.b, v.o1.b, v.o2.b, v.o3.b);
      }
      if (HEADS > 2u) {
        acc2[at] = acc2[at] * soft2.shrink + mix4(w2, v.o0.a, v.o1.a, v.o2.a, v.o3.a);
        acc2[at + 1u] = acc2[at + 1u] * soft2.shrink + mix4(w2, v.o0.b, v.o1.b, v.o2.b, v.o3.b);
      }
    }
  }

  for (var c = 0u; c < VECS; c += 1u) {
    put(r0 + c, acc0[c], soft0.total);
    if (HEADS > 1u && spare >= 1u) {
      put(r1 + c, acc1[c], soft1.total);
    }
    if (HEADS > 2u && spare >= 2u) {
      put(r2 + c, acc2[c], soft2.total);
    }
  }
  finish(r0, soft0.largest, soft0.total);
  if (HEADS > 1u && spare >= 1u) {
    finish(r1, soft1.largest, soft1.total);
  }
  if (HEADS > 2u && spare >= 2u) {
    finish(r2, soft2.largest, soft2.total);
  }
}
