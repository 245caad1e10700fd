// paged_attn_grouped: attention of each token over its paged KV cache, for query heads that share a KV head together, the
// context split over workgroups.
//
//   sums = sum over t of exp(score(t) - largest) * v[t],  score(t) = scale * dot(q[m,h], k[t, h / (H/G)])
//
// over the positions t <= position(m) of one partition, as paged_attn_decode has them: tokens [i*PART, (i+1)*PART), and the same
// again every parts*PART tokens. paged_attn_reduce combines the partitions; with WHOLE there is one, and the result is written.
//
// A round takes PART positions. Four invocations share the scores of two positions, of HEADS heads each; then one invocation has an
// octet of the sums of four heads and of every SLICES-th four of positions. Keys and values are read once for the HEADS heads. With
// AHEAD what a round reads is asked for before it is needed: the keys during the round before, values one four earlier.
//
// Shapes   M tokens, S sequences, H query heads, G KV heads (H a multiple of G), D = HEAD_DIM, N blocks of 16 tokens
//   tokens        [M] vec4<u32>                    read   (id, position, slot, sequence)
//   block_tables  [S, max_blocks] u32              read   entries past a sequence's end are never read
//   qkv           [M, row_stride] f32              read   the queries are the first H*D elements of a row
//   k_cache       [N, G, 16, D] by KV_TYPE         read   slots past a sequence's end are never read
//   v_cache       [N, G, 16, D] the same           read
//   partial       [R, H, parts, D+4] f32           write  D sums, the largest score, the sum of exponentials, two unused;
//                                                         with WHOLE [M, H*D], the results
// Grid     (G * ceil(H/G / HEADS), parts, R) workgroups of WG. A partition without tokens writes the score -FLT_MAX and the sum 0.
// Traffic  reads 4*D bytes (f16) of cache per position and KV head, for each HEADS of its heads; writes 4*M*H*parts*(D+4).
// Storage  14,656 bytes of workgroup memory.
// Numerics online softmax in f32; within 2e-5 of ref over the values in the cache. The order of sums depends on the position and on
//          parts only.
// Needs    lib_kv, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, PagedAttnDecode.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 128u;       // invocations per workgroup: 128, or 256 for 4 heads
const HEADS: u32 = 8u;      // query heads per workgroup: 4, 8
const HEAD_DIM: u32 = 128u; // D, a multiple of 16, at most 128
const KV_TYPE: u32 = 1u;    // of the cache: 0 f32, 1 f16, 2 int8 with scales
const WHOLE: u32 = 0u;      // 1: there is one partition
const AHEAD: u32 = 1u;      // 1: loads are early, which takes registers: for as few workgroups as cannot hide each other's waits

struct Params {
  heads: u32,      // H
  kv_heads: u32,   // G
  row_stride: u32, // elements of a row of qkv, a multiple of 4
  max_blocks: u32, // entries of a row of block_tables
  scale: f32,      // of the scores, D^-0.5
  parts: u32,      // partitions of a context
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
@group(0) @binding(7) var<storage, read_write> partial: array<vec4<f32>>;

const LANES: u32 = 4u;        // invocations that share a position's scores
const PART: u32 = WG / 2u;    // positions of a round, two for each of these
const BEYOND: u32 = WG / 4u;  // from the one to the other
const LOWEST: f32 = -3.4028234e38; // -FLT_MAX; WGSL has no infinity
const OCTETS: u32 = HEAD_DIM / 8u;
const VECS: u32 = HEAD_DIM / 4u;
const QUADS: u32 = HEADS / 4u;
const FOURS: u32 = PART / 4u;
const SLICES: u32 = WG / (OCTETS * QUADS); // invocations that share an octet of the sums
const EACH: u32 = (FOURS + SLICES - 1u) / SLICES;
const GROUPS: u32 = PART / 8u; // of eight positions

// Indices of workgroup memory are clamped: the first ones are constants where it matters, so that one clamp serves many loads.
struct Pair { a: vec4<f32>, b: vec4<f32> }
const LANED: u32 = 2u * QUADS;

var<workgroup> queries: array<array<Pair, OCTETS>, HEADS>;
var<workgroup> dots: array<array<vec4<f32>, WG>, LANED>; // of a quad's heads: [2 positions, QUADS], what lanes found; in the end sums
var<workgroup> scores: array<array<array<vec4<f32>, 4>, FOURS>, QUADS>; // or weights
var<workgroup> eights: array<array<vec4<f32>, 16>, QUADS>; // the largest scores of eight positions each, or totals
var<workgroup> shrinks: array<vec4<f32>, QUADS>; // what sums so far are worth
var<workgroup> ends: array<vec4<f32>, QUADS>; // the largest scores of all

// Raw is an octet as the cache has it: of 4-byte values it takes both vectors.
struct Raw { x: vec4<u32>, y: vec4<u32> }

fn k_raw(o: u32) -> Raw {
  if (KV_TYPE == 2u) {
    let c = (o & 1u) * 2u;
    return Raw(vec4<u32>(k_cache[o >> 1u][c], k_cache[o >> 1u][c + 1u], 0u, 0u), vec4<u32>(0u));
  }
  if (KV_TYPE == 1u) {
    return Raw(k_cache[o], vec4<u32>(0u));
  }
  return Raw(k_cache[2u * o], k_cache[2u * o + 1u]);
}

fn v_raw(o: u32) -> Raw {
  if (KV_TYPE == 2u) {
    let c = (o & 1u) * 2u;
    return Raw(vec4<u32>(v_cache[o >> 1u][c], v_cache[o >> 1u][c + 1u], 0u, 0u), vec4<u32>(0u));
  }
  if (KV_TYPE == 1u) {
    return Raw(v_cache[o], vec4<u32>(0u));
  }
  return Raw(v_cache[2u * o], v_cache[2u * o + 1u]);
}

fn decode(r: Raw) -> Octet {
  if (KV_TYPE == 2u) {
    return byte_octet(r.x.x, r.x.y);
  }
  if (KV_TYPE == 1u) {
    return half_octet(r.x);
  }
  return Octet(bitcast<vec4<f32>>(r.x), bitcast<vec4<f32>>(r.y));
}

// Keys is a lane's octets of the key whose first octet is o.
struct Keys { a: Raw, b: Raw, c: Raw, d: Raw, o: u32 }

fn key_at(o: u32, c: u32) -> Raw {
  if (OCTETS % LANES == 0u || c < OCTETS) {
    return k_raw(o + c);
  }
  return Raw(vec4<u32>(0u), vec4<u32>(0u));
}

// keys_at asks for position t of a sequence.
fn keys_at(seq: u32, t: u32, g: u32, lane: u32) -> Keys {
  let o = kv_octet(seq, t, g, p.kv_heads, p.max_blocks);
  var k: Keys;
  k.o = o;
  k.a = key_at(o, lane);
  if (OCTETS > LANES) {
    k.b = key_at(o, lane + LANES);
  }
  if (OCTETS > 2u * LANES) {
    k.c = key_at(o, lane + 2u * LANES);
  }
  if (OCTETS > 3u * LANES) {
    k.d = key_at(o, lane + 3u * LANES);
  }
  return k;
}

// Values is an octet of four neighbouring values, and what they are to be multiplied by.
struct Values { a: Raw, b: Raw, c: Raw, d: Raw, scale: vec4<f32> }

// values_at asks for a four of positions of the round that begins at first; last is the last position there is of it. Those past the
// end repeat the last one.
fn values_at(seq: u32, first: u32, four: u32, last: u32, g: u32, column: u32) -> Values {
  let i = min(4u * min(four, FOURS - 1u), last);
  let left = last - i;
  let o0 = kv_octet(seq, first + i, g, p.kv_heads, p.max_blocks);
  let o1 = o0 + min(1u, left) * OCTETS;
  let o2 = o0 + min(2u, left) * OCTETS;
  let o3 = o0 + min(3u, left) * OCTETS;
  return Values(v_raw(o0 + column), v_raw(o1 + column), v_raw(o2 + column), v_raw(o3 + column),
                vec4<f32>(v_scale(o0), v_scale(o1), v_scale(o2), v_scale(o3)));
}

fn dot8(q: Pair, k: Octet, sum: f32) -> f32 {
  let s = fma(q.a.w, k.a.w, fma(q.a.z, k.a.z, fma(q.a.y, k.a.y, fma(q.a.x, k.a.x, sum))));
  return fma(q.b.w, k.b.w, fma(q.b.z, k.b.z, fma(q.b.y, k.b.y, fma(q.b.x, k.b.x, s))));
}

// Dots is the products of two keys with the queries of up to eight heads.
struct Dots { lo0: vec4<f32>, hi0: vec4<f32>, lo1: vec4<f32>, hi1: vec4<f32> }

fn add_dots(d: Dots, c: u32, r0: Raw, r1: Raw) -> Dots {
  if (OCTETS % LANES != 0u && c >= OCTETS) {
    return d;
  }
  let k0 = decode(r0);
  let k1 = decode(r1);
  var out = d;
  let q0 = queries[0u][c];
  out.lo0.x = dot8(q0, k0, d.lo0.x);
  out.lo1.x = dot8(q0, k1, d.lo1.x);
  let q1 = queries[1u][c];
  out.lo0.y = dot8(q1, k0, d.lo0.y);
  out.lo1.y = dot8(q1, k1, d.lo1.y);
  let q2 = queries[2u][c];
  out.lo0.z = dot8(q2, k0, d.lo0.z);
  out.lo1.z = dot8(q2, k1, d.lo1.z);
  let q3 = queries[3u][c];
  out.lo0.w = dot8(q3, k0, d.lo0.w);
  out.lo1.w = dot8(q3, k1, d.lo1.w);
  if (HEADS == 8u) {
    let q4 = queries[HEADS - 4u][c];
    out.hi0.x = dot8(q4, k0, d.hi0.x);
    out.hi1.x = dot8(q4, k1, d.hi1.x);
    let q5 = queries[HEADS - 3u][c];
    out.hi0.y = dot8(q5, k0, d.hi0.y);
    out.hi1.y = dot8(q5, k1, d.hi1.y);
    let q6 = queries[HEADS - 2u][c];
    out.hi0.z = dot8(q6, k0, d.hi0.z);
    out.hi1.z = dot8(q6, k1, d.hi1.z);
    let q7 = queries[HEADS - 1u][c];
    out.hi0.w = dot8(q7, k0, d.hi0.w);
    out.hi1.w = dot8(q7, k1, d.hi1.w);
  }
  return out;
}

fn mac(sum: vec4<f32>, w: f32, v: vec4<f32>) -> vec4<f32> {
  return fma(vec4<f32>(w), v, sum);
}

// at is where vector i of head h goes.
fn at(wg: vec3<u32>, h: u32, i: u32) -> u32 {
  if (WHOLE == 1u) {
    return ((p.row0 + wg.z) * p.heads + h) * VECS + i;
  }
  return ((wg.z * p.heads + h) * p.parts + wg.y) * (VECS + 1u) + i;
}

// finish adds up over the slices what invocations have of head h of each quad, and writes it. All of the workgroup call it.
fn finish(wg: vec3<u32>, tid: u32, h0: u32, heads: u32, h: u32, a: vec4<f32>, b: vec4<f32>) {
  workgroupBarrier(); // what was there before has been read
  dots[0u][tid] = a;
  dots[1u][tid] = b;
  workgroupBarrier(); // the sums of all slices are complete
  let column = tid % OCTETS;
  let quad = tid / OCTETS % QUADS;
  let side = tid / (OCTETS * QUADS);
  let head = h0 + 4u * quad + h;
  if (side < 2u && head < heads) {
    var sum = vec4<f32>(0.0);
    for (var s = 0u; s < SLICES; s += 1u) {
      sum += dots[side][(s * QUADS + quad) * OCTETS + column];
    }
    partial[at(wg, head, 2u * column + side)] = sum;
  }
}

@compute @workgroup_size(WG)
fn paged_attn_grouped(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) tid: u32) {
  let m = p.row0 + wg.z;
  if (wg.z >= p.rows || m >= step.rows) { // the same for the whole workgroup
    return;
  }
  let token = tokens[m];
  let seq = token.w;
  let n = token.y + 1u;
  let per = p.heads / p.kv_heads;
  let groups = (per + HEADS - 1u) / HEADS;
  let g = wg.x / groups;
  let first_head = wg.x % groups * HEADS;
  let h0 = g * per + first_head;
  let heads = g * per + min(first_head + HEADS, per); // where this workgroup's heads end
  if (wg.y * PART >= n) { // nothing to do; the same for the whole workgroup
    if (tid < heads - h0) {
      partial[at(wg, h0 + tid, VECS)] = vec4<f32>(LOWEST, 0.0, 0.0, 0.0);
    }
    return;
  }
  // Scores: a lane's octets of two positions, then the sums of a position's four heads.
  let lane = tid % LANES;
  let mine = tid / LANES;
  let position = tid % PART;
  let own = tid / PART; // quad; past the last one there is nothing to do
  // Values: an octet of four heads' sums.
  let column = tid % OCTETS;
  let quad = tid / OCTETS % QUADS;
  let slice = tid / (OCTETS * QUADS);

  let begin = wg.y * PART;
  var k0 = keys_at(seq, min(begin + mine, n - 1u), g, lane);
  var k1 = keys_at(seq, min(begin + mine + BEYOND, n - 1u), g, lane);
  for (var i = tid; i < HEADS * OCTETS; i += WG) {
    let from_q = m * (p.row_stride / 4u) + min(h0 + i / OCTETS, heads - 1u) * VECS + i % OCTETS * 2u;
    queries[i / OCTETS][i % OCTETS] = Pair(qkv[from_q] * p.scale, qkv[from_q + 1u] * p.scale);
  }
  workgroupBarrier(); // the queries are complete

  var largest = vec4<f32>(LOWEST);
  var total = vec4<f32>(0.0);
  var a0 = vec4<f32>(0.0);
  var a1 = vec4<f32>(0.0);
  var a2 = vec4<f32>(0.0);
  var a3 = vec4<f32>(0.0);
  var b0 = vec4<f32>(0.0);
  var b1 = vec4<f32>(0.0);
  var b2 = vec4<f32>(0.0);
  var b3 = vec4<f32>(0.0);
  for (var first = begin; first < n; first += p.parts * PART) {
    let last = n - 1u - first; // never past the end: whatever lies there may be NaN
    var values: Values;
    if (AHEAD == 1u) {
      values = values_at(seq, first, slice, last, g, column);
    } else if (first != begin) {
      k0 = keys_at(seq, min(first + mine, n - 1u), g, lane);
      k1 = keys_at(seq, min(first + mine + BEYOND, n - 1u), g, lane);
    }
    var d = Dots(vec4<f32>(0.0), vec4<f32>(0.0), vec4<f32>(0.0), vec4<f32>(0.0));
    d = add_dots(d, lane, k0.a, k1.a);
    if (OCTETS > LANES) {
      d = add_dots(d, lane + LANES, k0.b, k1.b);
    }
    if (OCTETS > 2u * LANES) {
      d = add_dots(d, lane + 2u * LANES, k0.c, k1.c);
    }
    if (OCTETS > 3u * LANES) {
      d = add_dots(d, lane + 3u * LANES, k0.d, k1.d);
    }
    let s0 = k_scale(k0.o);
    let s1 = k_scale(k1.o);
    dots[0u][tid] = d.lo0 * s0;
    dots[QUADS][tid] = d.lo1 * s1;
    if (HEADS == 8u) {
      dots[QUADS - 1u][tid] = d.hi0 * s0;
      dots[2u * QUADS - 1u][tid] = d.hi1 * s1;
    }
    workgroupBarrier(); // what the lanes found is complete; weights of the round before are no longer needed
    var score = vec4<f32>(LOWEST);
    if (own < QUADS) {
      // Neighbours begin with different lanes, which lie in different banks.
      let line = position / BEYOND * QUADS + own;
      let from_lane = position % BEYOND * LANES;
      let turn = position % LANES;
      score = (dots[line][from_lane + turn] + dots[line][from_lane + (turn ^ 1u)])
            + (dots[line][from_lane + (turn ^ 2u)] + dots[line][from_lane + (turn ^ 3u)]);
      score = select(vec4<f32>(LOWEST), score, position <= last);
      scores[own][position / 4u][position % 4u] = score;
    }
    workgroupBarrier(); // the scores are complete
    if (own < QUADS) {
      // All eight that share a group find its largest score; one of them tells.
      let first_four = position / 8u * 2u;
      let turn = position / 8u % 2u; // so that neighbouring groups lie in different banks
      let x = first_four + turn;
      let y = first_four + (turn ^ 1u);
      let most_x = max(max(scores[own][x][0], scores[own][x][1]), max(scores[own][x][2], scores[own][x][3]));
      let most_y = max(max(scores[own][y][0], scores[own][y][1]), max(scores[own][y][2], scores[own][y][3]));
      if (position % 8u == 0u) {
        eights[own][position / 8u] = max(most_x, most_y);
      }
    }
    workgroupBarrier(); // the largest of groups are complete; all have read the scores before weights replace them
    if (own < QUADS) {
      var now = largest;
      for (var i = 0u; i < GROUPS; i += 1u) {
        now = max(now, eights[own][i]);
      }
      let shrink = exp(largest - now);
      largest = now;
      let weight = select(vec4<f32>(0.0), exp(score - now), position <= last);
      total = total * shrink + weight;
      scores[own][position / 4u][position % 4u] = weight;
      if (position == 0u) {
        shrinks[own] = shrink;
      }
    }
    workgroupBarrier(); // the weights are complete
    let next = first + p.parts * PART;
    if (AHEAD == 1u && next < n) {
      k0 = keys_at(seq, min(next + mine, n - 1u), g, lane);
      k1 = keys_at(seq, min(next + mine + BEYOND, n - 1u), g, lane);
    }
    let shrink = shrinks[quad];
    a0 *= shrink.x;
    b0 *= shrink.x;
    a1 *= shrink.y;
    b1 *= shrink.y;
    a2 *= shrink.z;
    b2 *= shrink.z;
    a3 *= shrink.w;
    b3 *= shrink.w;
    for (var j = 0u; j < EACH; j += 1u) {
      let four = slice + j * SLICES;
      var v = values;
      if (AHEAD == 0u) {
        v = values_at(seq, first, four, last, g, column);
      } else if (j + 1u < EACH) {
        values = values_at(seq, first, four + SLICES, last, g, column);
      }
      let s = v.scale * select(0.0, 1.0, slice < SLICES && four < FOURS);
      let w0 = scores[quad][min(four, FOURS - 1u)][0] * s.x; // past the last four nothing
      let w1 = scores[quad][min(four, FOURS - 1u)][1] * s.y;
      let w2 = scores[quad][min(four, FOURS - 1u)][2] * s.z;
      let w3 = scores[quad][min(four, FOURS - 1u)][3] * s.w;
      let v0 = decode(v.a);
      let v1 = decode(v.b);
      let v2 = decode(v.c);
      let v3 = decode(v.d);
      a0 = mac(mac(mac(mac(a0, w0.x, v0.a), w1.x, v1.a), w2.x, v2.a), w3.x, v3.a);
      b0 = mac(mac(mac(mac(b0, w0.x, v0.b), w1.x, v1.b), w2.x, v2.b), w3.x, v3.b);
      a1 = mac(mac(mac(mac(a1, w0.y, v0.a), w1.y, v1.a), w2.y, v2.a), w3.y, v3.a);
      b1 = mac(mac(mac(mac(b1, w0.y, v0.b), w1.y, v1.b), w2.y, v2.b), w3.y, v3.b);
      a2 = mac(mac(mac(mac(a2, w0.z, v0.a), w1.z, v1.a), w2.z, v2.a), w3.z, v3.a);
      b2 = mac(mac(mac(mac(b2, w0.z, v0.b), w1.z, v1.b), w2.z, v2.b), w3.z, v3.b);
      a3 = mac(mac(mac(mac(a3, w0.w, v0.a), w1.w, v1.a), w2.w, v2.a), w3.w, v3.a);
      b3 = mac(mac(mac(mac(b3, w0.w, v0.b), w1.w, v1.b), w2.w, v2.b), w3.w, v3.b);
    }
  }

  // The totals of all positions, by eights and then by all.
  workgroupBarrier(); // the weights of the last round have been read
  if (own < QUADS) {
    scores[own][position / 4u][position % 4u] = total;
    if (position == 0u) {
      ends[own] = largest;
    }
  }
  workgroupBarrier(); // the totals of the positions are complete
  if (tid < GROUPS * QUADS) {
    let i = tid % GROUPS * 2u;
    let lo = (scores[tid / GROUPS][i][0] + scores[tid / GROUPS][i][1]) + (scores[tid / GROUPS][i][2] + scores[tid / GROUPS][i][3]);
    let hi = (scores[tid / GROUPS][i + 1u][0] + scores[tid / GROUPS][i + 1u][1]) + (scores[tid / GROUPS][i + 1u][2] + scores[tid / GROUPS][i + 1u][3]);
    eights[tid / GROUPS][tid % GROUPS] = lo + hi;
  }
  workgroupBarrier(); // the totals of groups are complete
  var all = vec4<f32>(0.0);
  for (var i = 0u; i < GROUPS; i += 1u) {
    all += eights[quad][i];
  }
  if (WHOLE == 1u) {
    let over = vec4<f32>(1.0) / all;
    a0 *= over.x;
    b0 *= over.x;
    a1 *= over.y;
    b1 *= over.y;
    a2 *= over.z;
    b2 *= over.z;
    a3 *= over.w;
    b3 *= over.w;
  } else if (column == 0u && slice == 0u) {
    let most = ends[quad];
    let h = h0 + 4u * quad;
    for (var i = 0u; i < 4u && h + i < heads; i += 1u) {
      let pair = select(select(vec2<f32>(most.x, all.x), vec2<f32>(most.y, all.y), i == 1u),
                        select(vec2<f32>(most.z, all.z), vec2<f32>(most.w, all.w), i == 3u), i > 1u);
      partial[at(wg, h + i, VECS)] = vec4<f32>(pair, 0.0, 0.0);
    }
  }
  finish(wg, tid, h0, heads, 0u, a0, b0);
  finish(wg, tid, h0, heads, 1u, a1, b1);
  finish(wg, tid, h0, heads, 2u, a2, b2);
  finish(wg, tid, h0, heads, 3u, a3, b3);
}
