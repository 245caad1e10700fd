// paged_attn_linear: attention of a few tokens over short contexts, and the linear layer after it, in one kernel, for adapters where a
// dispatch costs more than the attention that many workgroups compute alike.
//
//   x[m,h]         = sum over t of exp(score(t)) * v[t, h / (H/G)] / sum over t of exp(score(t)),
//                    score(t) = scale * dot(q[m,h], k[t, h / (H/G)]),   over the positions t <= position(m), at most the first LIMIT
//   shares[m,s,j]  = dot(x[m, HEADS*s .. HEADS*s+HEADS-1], the same columns of w[j])
//
// A workgroup has a set of HEADS query heads, which share a KV head, and ROWS = WG/LANES*EACH rows of w, whose weights are on their way
// while it computes the attention of its heads. norm_linear adds up what the sets found.
//
// Two invocations share a key, of which each has every other octet. A value is read by D/2 invocations; they have every SLICES-th
// position. What is in workgroup memory is overwritten when it is no longer needed:
//
//   vec4 from   0            LIMIT          2*LIMIT
//               dots of halves of keys      queries, then scores
//               odds         sums of slices
//               inputs       sums of lanes
//
// Shapes   M tokens, at most 4, S sequences, H query heads, G KV heads, D = HEAD_DIM, N rows of w, K = H*D columns
//   tokens        [4] vec4<u32>                    read   (id, position, slot, sequence)
//   block_tables  [S, max_blocks] u32              read   entries past a sequence's end are never read
//   qkv           [M, row_stride] f32              read   the queries are the first H*D elements of a row
//   k_cache       [blocks, G, 16, D] by KV_TYPE    read   slots past a sequence's end are never read
//   v_cache       [blocks, G, 16, D] the same      read
//   w             [N, K] packed                    read   as internal/quant/format.go says; the buffer is padded to 16 bytes
//   scales        [N, words] u32                   read
//   shares        [M, H/HEADS, N] f32              write
// Grid     (ceil(N / ROWS), H/HEADS, M) workgroups of WG.
// Traffic  reads w and scales M times, and for each workgroup the keys and values of a KV head (from cache); writes 4*M*N*H/HEADS.
//          Bound by latency.
// Storage  10,752 bytes of workgroup memory.
// Numerics softmax in f32, relative to the largest score of each slice; f32 sums, LANES partial ones a row and set.
// Needs    a lib_weight file, appended by wgsl.Source; formats that are read 32 at a time; nothing beyond the portable subset.
// Ref      internal/ref, PagedAttnLinear.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 256u;       // invocations per workgroup
const HEADS: u32 = 4u;      // query heads of a set, 1 to 4, which divides H/G
const EACH: u32 = 2u;       // rows of w that an invocation has a part of: 1, 2 or 4
const SLICES: u32 = 4u;     // of positions: 4, 8 or 16, at most 2*WG/D
const K: u32 = 2048u;       // inputs, as in Params
const N: u32 = 1024u;       // rows of w, as in Params
const HEAD_DIM: u32 = 128u; // D, a multiple of 16, at most 128
const KV_TYPE: u32 = 1u;    // of the cache: 0 f32, 1 f16

struct Params {
  heads: u32,      // H
  kv_heads: u32,   // G
  row_stride: u32, // elements of a row of qkv, a multiple of 4
  max_blocks: u32, // entries of a row of block_tables
  scale: f32,      // of the scores, D^-0.5
  k: u32,          // K, elements, a multiple of 32
  n: u32,          // N, rows of w
  pad0: u32,
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
@group(0) @binding(7) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(8) var<storage, read> scales: array<u32>;
@group(0) @binding(9) var<storage, read_write> shares: array<f32>;

const LIMIT: u32 = 128u;           // positions that can be served; those whose keys are loaded together
const LOWEST: f32 = -3.4028234e38; // -FLT_MAX; WGSL has no infinity
const BLOCK: u32 = 16u;            // tokens per block
const OCTETS: u32 = HEAD_DIM / 8u;
const HEAD_OCTETS: u32 = BLOCK * OCTETS; // from one head of a block to the next
const VECS: u32 = HEAD_DIM / 4u;
const QUERIES: u32 = HEADS * VECS;
const COLUMNS: u32 = HEAD_DIM / 2u;
const PAIRS: u32 = (HEADS + 1u) / 2u; // of heads
const MIXED: u32 = PAIRS * VECS;
const TILE: u32 = 64u; // positions whose values are loaded together
const LANES: u32 = HEADS * HEAD_DIM / 32u; // that share a row of w, at most 16
const GROUPS: u32 = WG / LANES;
const SHARES: u32 = K / HEAD_DIM / HEADS;
const POOL: u32 = LIMIT + 2u * WG;
const MIDDLE: u32 = LIMIT;     // of pool: sums of slices, sums of lanes
const UPPER: u32 = 2u * LIMIT; // queries, scores

var<workgroup> pool: array<vec4<f32>, POOL>;
var<workgroup> tops: array<vec4<f32>, 16>;   // [SLICES]: the largest score of each head
var<workgroup> totals: array<vec4<f32>, 16>; // [SLICES]: the sums of odds of each head

// Two is an octet of a key as it is stored; f16 has nothing in hi.
struct Two { lo: vec4<u32>, hi: vec4<u32> }

// Keys is an invocation's half of a key.
struct Keys { a: Two, b: Two, c: Two, d: Two, e: Two, f: Two, g: Two, h: Two }

// Four is a column of the values of four positions, two elements each, as it is stored; f16 has nothing in hi.
struct Four { lo: vec4<u32>, hi: vec4<u32> }

// Values is a column of a slice's positions of a tile.
struct Values { a: Four, b: Four, c: Four, d: Four }

// Sums is a column of a slice's weighted values of each head, and the sums of their weights.
struct Sums { a: vec2<f32>, b: vec2<f32>, c: vec2<f32>, d: vec2<f32>, total: vec4<f32> }

// Mix is two columns of two heads, and the heads' sums of weights.
struct Mix { a: vec4<f32>, b: vec4<f32>, total: vec2<f32> }

// Row is a lane's weights of a row, not decoded yet, and their scale.
struct Row { raw: Raw, scale: vec2<f32> }

struct Held { a: Row, b: Row, c: Row, d: Row }

// vector_at is the index of the first octet of position t of sequence seq.
fn vector_at(seq: u32, t: u32, g: u32) -> u32 {
  let block = block_tables[seq * p.max_blocks + t / BLOCK];
  return (block * p.kv_heads + g) * HEAD_OCTETS + t % BLOCK * OCTETS;
}

// key_octet is octet 2*i + half of the key at o, if there is one.
fn key_octet(o: u32, i: u32, half: u32) -> Two {
  if (2u * i >= OCTETS) {
    return Two(vec4<u32>(0u), vec4<u32>(0u));
  }
  let at = o + 2u * i + half;
  if (KV_TYPE == 0u) {
    return Two(k_cache[2u * at], k_cache[2u * at + 1u]);
  }
  return Two(k_cache[at], vec4<u32>(0u));
}

fn keys_at(o: u32, half: u32) -> Keys {
  return Keys(key_octet(o, 0u, half), key_octet(o, 1u, half), key_octet(o, 2u, half), key_octet(o, 3u, half),
              key_octet(o, 4u, half), key_octet(o, 5u, half), key_octet(o, 6u, half), key_octet(o, 7u, half));
}

fn lower(k: Two) -> vec4<f32> {
  if (KV_TYPE == 0u) {
    return bitcast<vec4<f32>>(k.lo);
  }
  return vec4<f32>(unpack2x16float(k.lo.x), unpack2x16float(k.lo.y));
}

fn upper(k: Two) -> vec4<f32> {
  if (KV_TYPE == 0u) {
    return bitcast<vec4<f32>>(k.hi);
  }
  return vec4<f32>(unpack2x16float(k.lo.z), unpack2x16float(k.lo.w));
}

fn dot_head(head: u32, octet: u32, a: vec4<f32>, b: vec4<f32>) -> f32 {
  if (head >= HEADS) {
    return 0.0;
  }
  let at = UPPER + head * VECS + 2u * octet;
  return dot(pool[at], a) + dot(pool[at + 1u], b);
}

// dot_octet is what an octet adds to the scores of the heads.
fn dot_octet(k: Two, i: u32, half: u32) -> vec4<f32> {
  if (2u * i >= OCTETS) {
    return vec4<f32>(0.0);
  }
  let a = lower(k);
  let b = upper(k);
  let o = 2u * i + half;
  return vec4<f32>(dot_head(0u, o, a, b), dot_head(1u, o, a, b), dot_head(2u, o, a, b), dot_head(3u, o, a, b));
}

fn dot_keys(k: Keys, half: u32) -> vec4<f32> {
  return ((dot_octet(k.a, 0u, half) + dot_octet(k.b, 1u, half)) + (dot_octet(k.c, 2u, half) + dot_octet(k.d, 3u, half)))
       + ((dot_octet(k.e, 4u, half) + dot_octet(k.f, 5u, half)) + (dot_octet(k.g, 6u, half) + dot_octet(k.h, 7u, half)));
}

// value_word is column c of the value at o.
fn value_word(o: u32, c: u32) -> vec2<u32> {
  if (KV_TYPE == 0u) {
    let at = 2u * o + c / 2u;
    return vec2<u32>(v_cache[at][c % 2u * 2u], v_cache[at][c % 2u * 2u + 1u]);
  }
  return vec2<u32>(v_cache[o + c / 4u][c % 4u], 0u);
}

// four_at is the values of t and the three next positions of its slice; past the last one there is only this again.
fn four_at(seq: u32, t: u32, last: u32, g: u32, c: u32) -> Four {
  let t0 = min(t, last);
  let t1 = min(t + SLICES, last);
  let t2 = min(t + 2u * SLICES, last);
  let t3 = min(t + 3u * SLICES, last);
  let o0 = vector_at(seq, t0, g);
  var o1 = o0 + (t1 - t0) * OCTETS;
  var o2 = o0 + (t2 - t0) * OCTETS;
  var o3 = o0 + (t3 - t0) * OCTETS;
  if (4u * SLICES > BLOCK) { // else they are in one block
    o1 = vector_at(seq, t1, g);
    o2 = vector_at(seq, t2, g);
    o3 = vector_at(seq, t3, g);
  }
  let w0 = value_word(o0, c);
  let w1 = value_word(o1, c);
  let w2 = value_word(o2, c);
  let w3 = value_word(o3, c);
  return Four(vec4<u32>(w0.x, w1.x, w2.x, w3.x), vec4<u32>(w0.y, w1.y, w2.y, w3.y));
}

// values_at is the positions of a slice from tile on, of TILE positions.
fn values_at(seq: u32, tile: u32, slice: u32, last: u32, g: u32, c: u32) -> Values {
  let a = four_at(seq, tile + slice, last, g, c);
  if (SLICES > 8u) {
    return Values(a, a, a, a);
  }
  let b = four_at(seq, tile + slice + 4u * SLICES, last, g, c);
  if (SLICES > 4u) {
    return Values(a, b, b, b);
  }
  return Values(a, b, four_at(seq, tile + slice + 8u * SLICES, last, g, c), four_at(seq, tile + slice + 12u * SLICES, last, g, c));
}

fn value_pair(lo: u32, hi: u32) -> vec2<f32> {
  if (KV_TYPE == 0u) {
    return vec2<f32>(bitcast<f32>(lo), bitcast<f32>(hi));
  }
  return unpack2x16float(lo);
}

// weigh adds the value v of position t.
fn weigh(s: Sums, v: vec2<f32>, t: u32) -> Sums {
  let e = pool[t];
  return Sums(s.a + e.x * v, s.b + e.y * v, s.c + e.z * v, s.d + e.w * v, s.total + e);
}

fn weigh_four(s: Sums, f: Four, t: u32) -> Sums {
  let s0 = weigh(s, value_pair(f.lo.x, f.hi.x), t);
  let s1 = weigh(s0, value_pair(f.lo.y, f.hi.y), t + SLICES);
  let s2 = weigh(s1, value_pair(f.lo.z, f.hi.z), t + 2u * SLICES);
  return weigh(s2, value_pair(f.lo.w, f.hi.w), t + 3u * SLICES);
}

fn weigh_tile(s: Sums, v: Values, t: u32) -> Sums {
  let a = weigh_four(s, v.a, t);
  if (SLICES > 8u) {
    return a;
  }
  let b = weigh_four(a, v.b, t + 4u * SLICES);
  if (SLICES > 4u) {
    return b;
  }
  return weigh_four(weigh_four(b, v.c, t + 8u * SLICES), v.d, t + 12u * SLICES);
}

fn top_four(t: u32) -> vec4<f32> {
  let at = UPPER + t;
  return max(max(pool[at], pool[at + SLICES]), max(pool[at + 2u * SLICES], pool[at + 3u * SLICES]));
}

// top_tile is the largest scores of a slice's positions of a tile, of which t is the first.
fn top_tile(t: u32) -> vec4<f32> {
  let a = top_four(t);
  if (SLICES > 8u) {
    return a;
  }
  let b = max(a, top_four(t + 4u * SLICES));
  if (SLICES > 4u) {
    return b;
  }
  return max(b, max(top_four(t + 8u * SLICES), top_four(t + 12u * SLICES)));
}

// top_of is the largest scores of a slice, of n positions.
fn top_of(slice: u32, n: u32) -> vec4<f32> {
  var top = top_tile(slice);
  if (n > TILE) {
    top = max(top, top_tile(slice + TILE));
  }
  return top;
}

fn top_slices(s: u32) -> vec4<f32> {
  return max(max(tops[s], tops[s + 1u]), max(tops[s + 2u], tops[s + 3u]));
}

// mix_slice adds columns 2*j and 2*j + 1 of a pair of heads of slice s.
fn mix_slice(x: Mix, s: u32, pair: u32, j: u32, top: vec4<f32>) -> Mix {
  let all = exp(tops[s] - top);
  let f = select(all.zw, all.xy, pair == 0u);
  let sum = select(totals[s].zw, totals[s].xy, pair == 0u);
  let at = MIDDLE + (s * PAIRS + pair) * COLUMNS + 2u * j;
  let scale = vec4<f32>(f.xx, f.yy);
  return Mix(x.a + scale * pool[at], x.b + scale * pool[at + 1u], x.total + f * sum);
}

fn mix_four(x: Mix, s: u32, pair: u32, j: u32, top: vec4<f32>) -> Mix {
  return mix_slice(mix_slice(mix_slice(mix_slice(x, s, pair, j, top), s + 1u, pair, j, top), s + 2u, pair, j, top), s + 3u, pair, j, top);
}

// place is where vec4 i of the inputs lies: neighbouring lanes, which have eight neighbours each, are kept off each other's banks.
fn place(i: u32) -> u32 {
  return i ^ (i / 8u % 8u);
}

// mix puts the slices together and leaves the inputs of the layer: four elements of two heads an invocation.
fn mix(tid: u32) {
  var top = top_slices(0u);
  if (SLICES > 4u) {
    top = max(top, top_slices(4u));
  }
  if (SLICES > 8u) {
    top = max(top, max(top_slices(8u), top_slices(12u)));
  }
  let pair = tid / VECS;
  let j = tid % VECS;
  var x = mix_four(Mix(vec4<f32>(0.0), vec4<f32>(0.0), vec2<f32>(0.0)), 0u, pair, j, top);
  if (SLICES > 4u) {
    x = mix_four(x, 4u, pair, j, top);
  }
  if (SLICES > 8u) {
    x = mix_four(mix_four(x, 8u, pair, j, top), 12u, pair, j, top);
  }
  pool[place(2u * pair * VECS + j)] = vec4<f32>(x.a.xy, x.b.xy) / x.total.x;
  if (2u * pair + 1u < HEADS) {
    pool[place((2u * pair + 1u) * VECS + j)] = vec4<f32>(x.a.zw, x.b.zw) / x.total.y;
  }
}

// attend leaves the attention of token m by the heads of a set in pool, as inputs of the layer.
fn attend(m: u32, share: u32, tid: u32) {
  let token = tokens[m];
  let n = min(token.y + 1u, LIMIT); // positions that this token sees
  let last = n - 1u;
  let g = share * HEADS / (p.heads / p.kv_heads);
  let key = tid / 2u;
  let half = tid % 2u;
  let slice = tid / COLUMNS;
  let busy = slice < SLICES;
  let first = min(slice, SLICES - 1u);
  let column = tid % COLUMNS;
  // Everything is asked for before anything is computed. Positions past the end hold anything: what is read instead is the last one.
  let keys = keys_at(vector_at(token.w, min(key, last), g), half);
  let v0 = values_at(token.w, 0u, first, last, g, column);
  var v1 = v0;
  if (n > TILE) {
    v1 = values_at(token.w, TILE, first, last, g, column);
  }
  if (tid < QUERIES) {
    pool[UPPER + tid] = qkv[m * p.row_stride / 4u + share * QUERIES + tid] * p.scale;
  }
  workgroupBarrier(); // queries are complete
  pool[half * LIMIT + key] = dot_keys(keys, half);
  workgroupBarrier(); // dots are complete; nobody reads queries any more
  var score = vec4<f32>(LOWEST);
  if (tid < n) {
    score = pool[tid] + pool[LIMIT + tid];
  }
  if (tid < LIMIT) {
    pool[UPPER + tid] = score;
  }
  workgroupBarrier(); // scores are complete; nobody reads dots any more
  if (tid < LIMIT) {
    let top = top_of(tid % SLICES, n);
    pool[tid] = select(vec4<f32>(0.0), exp(score - top), tid < n);
    if (tid < SLICES) {
      tops[tid] = top;
    }
  }
  workgroupBarrier(); // odds are complete; nobody reads scores any more
  if (busy) {
    var s = weigh_tile(Sums(vec2<f32>(0.0), vec2<f32>(0.0), vec2<f32>(0.0), vec2<f32>(0.0), vec4<f32>(0.0)), v0, slice);
    if (n > TILE) {
      s = weigh_tile(s, v1, slice + TILE);
    }
    let at = MIDDLE + slice * PAIRS * COLUMNS + column;
    pool[at] = vec4<f32>(s.a, s.b);
    if (PAIRS > 1u) {
      pool[at + COLUMNS] = vec4<f32>(s.c, s.d);
    }
    if (column == 0u) {
      totals[slice] = s.total;
    }
  }
  workgroupBarrier(); // sums are complete; nobody reads odds any more
  if (tid < MIXED) {
    mix(tid);
  }
  workgroupBarrier(); // inputs are complete; nobody reads sums any more
}

fn load_row(j: u32, b: u32) -> Row {
  let at = min(j, N - 1u) * (K / 32u) + b; // invocations past the last row must still reach the barriers
  return Row(weight_raw(at), weight_scale(4u * at));
}

// hold is a lane's weights of EACH rows from j on; b counts its 32 columns.
fn hold(j: u32, b: u32) -> Held {
  let first = load_row(j, b);
  if (EACH == 1u) {
    return Held(first, first, first, first);
  }
  let second = load_row(j + 1u, b);
  if (EACH == 2u) {
    return Held(first, second, second, second);
  }
  return Held(first, second, load_row(j + 2u, b), load_row(j + 3u, b));
}

fn input_of(lane: u32, i: u32) -> vec4<f32> {
  return pool[place(8u * lane + i)];
}

fn dot_row(r: Row, lane: u32) -> f32 {
  let q = raw_quad(r.raw, r.scale.y);
  return r.scale.x * (((dot(q.o0.a, input_of(lane, 0u)) + dot(q.o0.b, input_of(lane, 1u)))
                     + (dot(q.o1.a, input_of(lane, 2u)) + dot(q.o1.b, input_of(lane, 3u))))
                    + ((dot(q.o2.a, input_of(lane, 4u)) + dot(q.o2.b, input_of(lane, 5u)))
                     + (dot(q.o3.a, input_of(lane, 6u)) + dot(q.o3.b, input_of(lane, 7u)))));
}

// part_at is where the sums of a lane of a group lie; neighbouring lanes and neighbouring groups are kept off each other's banks.
fn part_at(group: u32, lane: u32) -> u32 {
  return MIDDLE + lane * GROUPS + (group + lane) % GROUPS;
}

fn part_of(group: u32, lane: u32) -> vec4<f32> {
  if (lane >= LANES) {
    return vec4<f32>(0.0);
  }
  return pool[part_at(group, lane)];
}

fn sum_eight(group: u32, lane: u32) -> vec4<f32> {
  return ((part_of(group, lane) + part_of(group, lane + 1u)) + (part_of(group, lane + 2u) + part_of(group, lane + 3u)))
       + ((part_of(group, lane + 4u) + part_of(group, lane + 5u)) + (part_of(group, lane + 6u) + part_of(group, lane + 7u)));
}

fn put(at: u32, j: u32, v: f32) {
  if (j < N) {
    shares[at + j] = v;
  }
}

// row computes what this workgroup has of token m: rows of w from first on, for a set of heads.
fn row(m: u32, share: u32, first: u32, held: Held, tid: u32) {
  attend(m, share, tid);
  let lane = tid % LANES;
  let group = tid / LANES;
  if (group < GROUPS) {
    var z = vec4<f32>(dot_row(held.a, lane), 0.0, 0.0, 0.0);
    if (EACH > 1u) {
      z.y = dot_row(held.b, lane);
    }
    if (EACH > 2u) {
      z.z = dot_row(held.c, lane);
      z.w = dot_row(held.d, lane);
    }
    pool[part_at(group, lane)] = z;
  }
  workgroupBarrier(); // sums of lanes are complete
  if (tid < GROUPS) {
    var z = sum_eight(tid, 0u);
    if (LANES > 8u) {
      z += sum_eight(tid, 8u);
    }
    let at = (m * SHARES + share) * N;
    let j = first + tid * EACH;
    put(at, j, z.x);
    if (EACH > 1u) {
      put(at, j + 1u, z.y);
    }
    if (EACH > 2u) {
      put(at, j + 2u, z.z);
      put(at, j + 3u, z.w);
    }
  }
}

@compute @workgroup_size(WG)
fn paged_attn_linear(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) tid: u32) {
  let first = wg.x * (GROUPS * EACH);
  let held = hold(first + tid / LANES * EACH, wg.y * LANES + tid % LANES);
  let m = wg.z;
  if (m < step.rows) { // the same for the whole workgroup
    row(m, wg.y, first, held, tid);
  }
}
