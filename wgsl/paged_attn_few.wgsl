// paged_attn_few: attention of a few tokens over their paged KV cache, the context split over workgroups, with every load of a tile of
// 64 positions on its way at once.
//
//   sums = sum over t of exp(score(t) - largest) * v[t],  score(t) = scale * dot(q[m,h], k[t, h / (H/G)])
//
// over the positions t <= position(m) of one partition, which are cut as paged_attn_decode cuts them. One workgroup serves HEADS
// query heads of one KV head. Four invocations share a key; a value is read by D/8 invocations, each of which has TOKENS positions
// of one head. attn_linear or paged_attn_reduce combines the partitions.
//
// Shapes   M tokens, at most 4, S sequences, H query heads, G KV heads (H a multiple of G), D = HEAD_DIM, N blocks of 16 tokens
//   tokens        [4] vec4<u32>                    read   (id, position, slot, sequence)
//   block_tables  [S, max_blocks] u32              read   entries past a sequence's end are never read
//   qkv           [M, row_stride] f32              read   the queries are the first H*D elements of a row
//   k_cache       [N, G, 16, D] by KV_TYPE         read   slots past a sequence's end are never read
//   v_cache       [N, G, 16, D] the same           read
//   partial       [M, H, parts, D+4] f32           write  D sums, the largest score, the sum of exponentials, two unused
// Grid     (H/HEADS, parts, M) workgroups of WG. Of a partition without tokens the largest score and the sum of exponentials are
//          written, -FLT_MAX and 0, and the sums are not.
// Traffic  reads 4*D bytes (f16) of cache per position and KV head if the H/G heads that share it also share a cache, H/G/HEADS
//          times that if not; writes 4*M*H*parts*(D+4). Bound by latency for short contexts, by memory for long ones.
// Storage  4*HEADS*D + 1280*HEADS + 32*WG + 4*HEADS*SLICES bytes of workgroup memory, less in the variant.
// Numerics online softmax in f32; within 2e-5 of ref over the values in the cache.
// Needs    lib_kv, lib_place and lib_scores, appended by wgsl.Source; nothing beyond the portable subset. A variant has
//          lib_place_subgroups and lib_scores_subgroups.
// Ref      internal/ref, PagedAttnDecode.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 256u;       // invocations per workgroup
const PART: u32 = 64u;      // tokens per partition, a quarter of WG
const HEADS: u32 = 2u;      // query heads of a workgroup, 1 or 2, which divides H/G
const SLICES: u32 = 8u;     // of a head's positions: a power of two, at most WG/HEADS/(D/8), PART/16 to PART
const HEAD_DIM: u32 = 128u; // D, a multiple of 16, at most 256
const KV_TYPE: u32 = 1u;    // of the cache: 0 f32, 1 f16, 2 int8 with scales

struct Params {
  heads: u32,      // H
  kv_heads: u32,   // G
  row_stride: u32, // elements of a row of qkv, a multiple of 4
  max_blocks: u32, // entries of a row of block_tables
  scale: f32,      // of the scores, D^-0.5
  parts: u32,      // partitions of a context
  row0: u32,       // 0
  rows: u32,       // most tokens
}

struct Step {
  rows: u32, // M, the tokens that this step really has
  pad0: u32,
  pad1: u32,
  pad2: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<uniform> tokens: array<vec4<u32>, 4>;
@group(0) @binding(3) var<storage, read> block_tables: array<u32>;
@group(0) @binding(4) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> k_cache: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read> v_cache: array<vec4<u32>>;
@group(0) @binding(7) var<storage, read_write> partial: array<vec4<f32>>;

const LOWEST: f32 = -3.4028234e38; // -FLT_MAX; WGSL has no infinity
const OCTETS: u32 = HEAD_DIM / 8u;
const VECS: u32 = HEAD_DIM / 4u;
const QUERIES: u32 = HEADS * VECS;
const SCORES: u32 = HEADS * PART;
const SPAN: u32 = WG / HEADS;      // invocations of a head
const TOKENS: u32 = PART / SLICES; // positions of a slice in a tile, neighbours in one block
const TOTALS: u32 = HEADS * SLICES;
const SUMS: u32 = 2u * WG;

var<workgroup> q: array<vec4<f32>, QUERIES>;
var<workgroup> scores: array<f32, SCORES>;
var<workgroup> totals: array<f32, TOTALS>;
var<workgroup> sums: array<vec4<f32>, SUMS>; // [WG, 2]

// Keys is a lane's four octets of a key, or four more.
struct Keys { a: Octet, b: Octet, c: Octet, d: Octet }

// key_at is octet i of the key that begins at o, and nothing past its end.
fn key_at(o: u32, i: u32) -> Octet {
  if (i < OCTETS) {
    return k_octet(o + i);
  }
  return Octet(vec4<f32>(0.0), vec4<f32>(0.0));
}

fn keys_at(o: u32, i: u32) -> Keys {
  return Keys(key_at(o, i), key_at(o, i + 4u), key_at(o, i + 8u), key_at(o, i + 12u));
}

fn dot_key(k: Octet, head: u32, i: u32) -> f32 {
  if (i >= OCTETS) {
    return 0.0;
  }
  let at = head * VECS + 2u * i;
  return dot(q[at], k.a) + dot(q[at + 1u], k.b);
}

fn dot_keys(k: Keys, head: u32, i: u32) -> f32 {
  return (dot_key(k.a, head, i) + dot_key(k.b, head, i + 4u)) + (dot_key(k.c, head, i + 8u) + dot_key(k.d, head, i + 12u));
}

// weigh adds the value v, of weight e, to sums.
fn weigh(sum: Octet, v: Octet, e: f32) -> Octet {
  return Octet(sum.a + e * v.a, sum.b + e * v.b);
}

// weight is that of position i of a tile that has left; now is the largest score so far. Past the end it is nothing.
fn weight(head: u32, i: u32, left: u32, now: f32) -> f32 {
  return select(0.0, exp(scores[head * PART + min(i, left - 1u)] - now), i < left);
}

// largest_score is the largest score of a head in the tile and before.
fn largest_score(head: u32, before: f32) -> f32 {
  var now = before;
  for (var i = head * PART; i < head * PART + PART; i += 4u) {
    now = max(now, max(max(scores[i], scores[i + 1u]), max(scores[i + 2u], scores[i + 3u])));
  }
  return now;
}

@compute @workgroup_size(WG)
fn paged_attn_few(@builtin(workgroup_id) wg: vec3<u32>, me: Place) {
  let tid = index_of(me);
  let m = wg.z;
  if (m >= step.rows) { // the same for the whole workgroup
    return;
  }
  let token = tokens[m];
  let n = token.y + 1u; // positions that this token sees
  let head0 = wg.x * HEADS;
  let g = head0 / (p.heads / p.kv_heads);
  let out = ((m * p.heads + head0) * p.parts + wg.y) * (VECS + 1u); // of the first head
  if (wg.y * PART >= n) {
    if (tid < HEADS) {
      partial[out + tid * p.parts * (VECS + 1u) + VECS] = vec4<f32>(LOWEST, 0.0, 0.0, 0.0);
    }
    return;
  }
  let key = tid / 4u; // position of the tile
  let quarter = tid % 4u;
  let head = tid / SPAN;
  let place = tid % SPAN;
  let slice = place / OCTETS;
  let column = place % OCTETS;
  let busy = slice < SLICES;
  let mine = min(slice, SLICES - 1u) * TOKENS; // first position of the tile whose value this invocation reads
  var largest = LOWEST;
  var total = 0.0;
  var sum = Octet(vec4<f32>(0.0), vec4<f32>(0.0));
  for (var first = wg.y * PART; first < n; first += p.parts * PART) {
    let left = min(PART, n - first);
    // Positions past the end hold anything: what is read instead is the last one, and its weight is nothing.
    let ko = kv_octet(token.w, first + min(key, left - 1u), g, p.kv_heads, p.max_blocks);
    let keys = keys_at(ko, quarter);
    let ks = k_scale(ko);
    let base = min(mine, left - 1u);
    let last = left - 1u - base;
    let vo = kv_octet(token.w, first + base, g, p.kv_heads, p.max_blocks);
    let step0 = OCTETS * min(1u, last);
    let step1 = OCTETS * min(2u, last);
    let step2 = OCTETS * min(3u, last);
    let v0 = v_octet(vo + column);
    var v1 = v0;
    var v2 = v0;
    var v3 = v0;
    var v4 = v0;
    var v5 = v0;
    var v6 = v0;
    var v7 = v0;
    if (TOKENS > 1u) {
      v1 = v_octet(vo + step0 + column);
    }
    if (TOKENS > 2u) {
      v2 = v_octet(vo + step1 + column);
      v3 = v_octet(vo + step2 + column);
    }
    if (TOKENS > 4u) {
      v4 = v_octet(vo + OCTETS * min(4u, last) + column);
      v5 = v_octet(vo + OCTETS * min(5u, last) + column);
      v6 = v_octet(vo + OCTETS * min(6u, last) + column);
      v7 = v_octet(vo + OCTETS * min(7u, last) + column);
    }
    if (first < p.parts * PART && tid < QUERIES) {
      q[tid] = qkv[m * p.row_stride / 4u + head0 * VECS + tid] * p.scale;
    }
    workgroupBarrier(); // q is complete; nobody reads the scores of the tile before any more
    for (var i = 0u; i < HEADS; i += 1u) {
      var d = dot_keys(keys, i, quarter);
      if (OCTETS > 16u) {
        d += dot_keys(keys_at(ko, quarter + 16u), i, quarter + 16u);
      }
      give_dot(i, d * ks, ko, left, tid, me);
    }
    settle(left, tid);
    let now = largest_of(head, largest, me);
    let shrink = exp(largest - now);
    largest = now;
    sum = Octet(sum.a * shrink, sum.b * shrink);
    total *= shrink;
    if (busy) {
      let e0 = weight(head, mine, left, now);
      sum = weigh(sum, v0, e0 * v_scale(vo));
      total += e0;
      if (TOKENS > 1u) {
        let e1 = weight(head, mine + 1u, left, now);
        sum = weigh(sum, v1, e1 * v_scale(vo + step0));
        total += e1;
      }
      if (TOKENS > 2u) {
        let e2 = weight(head, mine + 2u, left, now);
        let e3 = weight(head, mine + 3u, left, now);
        sum = weigh(weigh(sum, v2, e2 * v_scale(vo + step1)), v3, e3 * v_scale(vo + step2));
        total += e2 + e3;
      }
      if (TOKENS > 4u) {
        let e4 = weight(head, mine + 4u, left, now);
        let e5 = weight(head, mine + 5u, left, now);
        let e6 = weight(head, mine + 6u, left, now);
        let e7 = weight(head, mine + 7u, left, now);
        sum = weigh(weigh(sum, v4, e4 * v_scale(vo + OCTETS * min(4u, last))), v5, e5 * v_scale(vo + OCTETS * min(5u, last)));
        sum = weigh(weigh(sum, v6, e6 * v_scale(vo + OCTETS * min(6u, last))), v7, e7 * v_scale(vo + OCTETS * min(7u, last)));
        total += (e4 + e5) + (e6 + e7);
      }
      for (var i = 8u; i < TOKENS; i += 1u) {
        let o = vo + OCTETS * min(i, last);
        let e = weight(head, mine + i, left, now);
        sum = weigh(sum, v_octet(o + column), e * v_scale(o));
        total += e;
      }
    }
  }

  sums[2u * tid] = sum.a;
  sums[2u * tid + 1u] = sum.b;
  if (busy && column == 0u) {
    totals[head * SLICES + slice] = total;
  }
  workgroupBarrier(); // sums and totals are complete
  for (var i = tid; i < QUERIES; i += WG) {
    let h = i / VECS;
    let at = 2u * h * SPAN + i % VECS;
    var all = sums[at];
    for (var s = 1u; s < SLICES; s += 1u) {
      all += sums[at + s * VECS];
    }
    partial[out + h * p.parts * (VECS + 1u) + i % VECS] = all;
  }
  if (place == 0u) {
    var all = 0.0;
    for (var s = 0u; s < SLICES; s += 1u) {
      all += totals[head * SLICES + s];
    }
    partial[out + head * p.parts * (VECS + 1u) + VECS] = vec4<f32>(largest, all, 0.0, 0.0);
  }
}
