// paged_attn_grouped: attention of single tokens over their paged KV cache, for all query heads that share a KV head together, the
// context split over workgroups.
//
//   sums = sum over t of exp(score(t) - largest) * v[t],  score(t) = scale * dot(q[m,h], k[t, h / (H/G)])
//
// over the positions t <= position(m) of one partition, as paged_attn_decode has them: tokens [i*PART, (i+1)*PART), and the same
// again every parts*PART tokens. paged_attn_reduce combines the partitions; with WHOLE there is one, and the result is written.
//
// A round takes PART positions. Four invocations share a position's scores, of HEADS heads each; then one invocation has each octet of
// the sums of every SLICES-th position. Keys and values are read once for the HEADS heads.
//
// Shapes   M tokens, S sequences, H query heads, G KV heads (H a multiple of G), D = HEAD_DIM, N blocks of 16 tokens
//   tokens        [M] vec4<u32>                    read   (id, position, slot, sequence)
//   block_tables  [S, max_blocks] u32              read   entries past a sequence's end are never read
//   qkv           [M, row_stride] f32              read   the queries are the first H*D elements of a row
//   k_cache       [N, G, 16, D] by KV_TYPE         read   slots past a sequence's end are never read
//   v_cache       [N, G, 16, D] the same           read
//   partial       [R, H, parts, D+4] f32           write  D sums, the largest score, the sum of exponentials, two unused;
//                                                         with WHOLE [M, H*D], the results
// Grid     (G * ceil(H/G / HEADS), parts, R) workgroups of WG. A partition without tokens writes the sums 0, the score -FLT_MAX and
//          the sum 0.
// Traffic  reads 4*D bytes (f16) of cache per position and KV head, for each HEADS of its heads; writes 4*M*H*parts*(D+4).
// Storage  16,384 bytes of workgroup memory, all that WebGPU guarantees.
// Numerics online softmax in f32; within 2e-5 of ref over the values in the cache. The order of sums depends on the position and on
//          parts only.
// Needs    lib_kv, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, PagedAttnDecode.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const HEAD_DIM: u32 = 128u; // D, a multiple of 16, at most 128
const KV_TYPE: u32 = 1u;    // of the cache: 0 f32, 1 f16, 2 int8 with scales
const HEADS: u32 = 8u;      // query heads per workgroup: 4, 8
const WHOLE: u32 = 0u;      // 1: there is one partition

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

// No tuning: workgroup, partition and room belong together.
const WG: u32 = 256u;
const PART: u32 = 64u;  // tokens per partition
const LANES: u32 = 4u;  // invocations that share a position's scores
const LOWEST: f32 = -3.4028234e38; // -FLT_MAX; WGSL has no infinity
const OCTETS: u32 = HEAD_DIM / 8u;
const VECS: u32 = HEAD_DIM / 4u;
const SLICES: u32 = WG / OCTETS; // invocations that share an octet of the sums
const LANE_OCTETS: u32 = (OCTETS + LANES - 1u) / LANES;
const SLICE_PARTS: u32 = (PART + SLICES - 1u) / SLICES; // positions of a round for an invocation
// Where things lie in the room: queries, what lanes found, scores or weights, and factors.
const AT_LANES: u32 = 256u;
const AT_SCORES: u32 = 768u;
const AT_SHRINK: u32 = 896u;
const AT_TOTAL: u32 = 898u;


var<workgroup> room: array<vec4<f32>, 1024>; // vectors along heads, but for queries; in the end sums

// dot8 is the product of a head's octet c with k.
fn dot8(h: u32, c: u32, k: Octet) -> f32 {
  let at = h * VECS + 2u * c;
  let x = room[at] * k.a + room[at + 1u] * k.b;
  return (x.x + x.y) + (x.z + x.w);
}

fn dots(h: u32, c: u32, k: Octet) -> vec4<f32> {
  return vec4<f32>(dot8(h, c, k), dot8(h + 1u, c, k), dot8(h + 2u, c, k), dot8(h + 3u, c, k));
}

// at is where vector i of head h goes.
fn at(wg: vec3<u32>, h: u32, i: u32) -> u32 {
  if (WHOLE == 1u) {
    return ((p.row0 + wg.z) * p.heads + h) * VECS + i;
  }
  return ((wg.z * p.heads + h) * p.parts + wg.y) * (VECS + 1u) + i;
}

// finish adds up over the slices what invocations have of two heads, and writes it. All of the workgroup call it.
fn finish(wg: vec3<u32>, tid: u32, h: u32, heads: u32, over: vec2<f32>, a0: vec4<f32>, b0: vec4<f32>, a1: vec4<f32>, b1: vec4<f32>) {
  workgroupBarrier(); // what was there before has been read
  room[tid] = a0;
  room[tid + WG] = b0;
  room[tid + 2u * WG] = a1;
  room[tid + 3u * WG] = b1;
  workgroupBarrier(); // the sums of all slices are complete
  let column = tid % OCTETS;
  let which = tid / OCTETS; // a0, b0, a1, b1
  if (which < 4u && h + which / 2u < heads) {
    var sum = vec4<f32>(0.0);
    for (var s = 0u; s < SLICES; s += 1u) {
      sum += room[which * WG + s * OCTETS + column];
    }
    partial[at(wg, h + which / 2u, 2u * column + which % 2u)] = sum * select(over.x, over.y, which >= 2u);
  }
}

// ending is what a partition's sums are multiplied by when they are written: one over the total where there is one partition.
fn ending(total: vec4<f32>) -> vec4<f32> {
  if (WHOLE == 1u) {
    return vec4<f32>(1.0) / total;
  }
  return vec4<f32>(1.0);
}

@compute @workgroup_size(WG)
fn paged_attn_grouped(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) tid: u32) {
  let m = p.row0 + wg.z;
  if (wg.z >= p.rows || m >= step.rows) { // the same for the whole workgroup
    return;
  }
  let token = tokens[m];
  let n = token.y + 1u;
  let per = p.heads / p.kv_heads;
  let groups = (per + HEADS - 1u) / HEADS;
  let g = wg.x / groups;
  let first_head = wg.x % groups * HEADS;
  let h0 = g * per + first_head;
  let heads = g * per + min(first_head + HEADS, per); // where this workgroup's heads end
  for (var i = tid; i < HEADS * VECS; i += WG) {
    let h = min(h0 + i / VECS, heads - 1u);
    room[i] = qkv[m * (p.row_stride / 4u) + h * VECS + i % VECS] * p.scale;
  }
  workgroupBarrier(); // the queries are complete

  let lane = tid % LANES;
  let mine = tid / LANES; // the position of a round whose scores this invocation helps to compute
  let column = tid % OCTETS;
  let slice = tid / OCTETS;
  // The first 2*PART invocations have a position's weights of four heads each.
  let quad = tid % 2u;
  var largest = vec4<f32>(LOWEST);
  var total = vec4<f32>(0.0);
  var a0 = vec4<f32>(0.0);
  var a1 = vec4<f32>(0.0);
  var a2 = vec4<f32>(0.0);
  var a3 = vec4<f32>(0.0);
  var a4 = vec4<f32>(0.0);
  var a5 = vec4<f32>(0.0);
  var a6 = vec4<f32>(0.0);
  var a7 = vec4<f32>(0.0);
  var b0 = vec4<f32>(0.0);
  var b1 = vec4<f32>(0.0);
  var b2 = vec4<f32>(0.0);
  var b3 = vec4<f32>(0.0);
  var b4 = vec4<f32>(0.0);
  var b5 = vec4<f32>(0.0);
  var b6 = vec4<f32>(0.0);
  var b7 = vec4<f32>(0.0);
  for (var first = wg.y * PART; first < n; first += p.parts * PART) {
    let count = min(PART, n - first); // never past the end: whatever lies there may be NaN
    var lo = vec4<f32>(0.0);
    var hi = vec4<f32>(0.0);
    if (mine < count) {
      let o = kv_octet(token.w, first + mine, g, p.kv_heads, p.max_blocks);
      for (var i = 0u; i < LANE_OCTETS; i += 1u) { // a constant number of rounds, so that loads need not wait for each other
        let c = lane + i * LANES;
        if (OCTETS % LANES == 0u || c < OCTETS) {
          let k = k_octet(o + c);
          lo += dots(0u, c, k);
          if (HEADS == 8u) {
            hi += dots(4u, c, k);
          }
        }
      }
      let s = k_scale(o);
      lo *= s;
      hi *= s;
    }
    room[AT_LANES + 2u * tid] = lo;
    room[AT_LANES + 2u * tid + 1u] = hi;
    workgroupBarrier(); // what the lanes found is complete; weights of the round before are no longer needed
    if (tid < 2u * PART) {
      let from_lane = AT_LANES + tid / 2u * (2u * LANES) + quad;
      let score = (room[from_lane] + room[from_lane + 2u]) + (room[from_lane + 4u] + room[from_lane + 6u]);
      room[AT_SCORES + tid] = select(vec4<f32>(LOWEST), score, tid / 2u < count);
    }
    workgroupBarrier(); // the scores are complete
    var weight = vec4<f32>(0.0);
    var shrink = vec4<f32>(1.0);
    if (tid < 2u * PART) {
      var now = largest;
      for (var i = 0u; i < PART; i += 4u) {
        let at = AT_SCORES + 2u * i + quad;
        now = max(max(now, max(room[at], room[at + 2u])), max(room[at + 4u], room[at + 6u]));
      }
      shrink = exp(largest - now);
      largest = now;
      if (tid / 2u < count) {
        weight = exp(room[AT_SCORES + tid] - now);
      }
      total = total * shrink + weight;
    }
    workgroupBarrier(); // all have read the scores before weights replace them
    if (tid < 2u * PART) {
      room[AT_SCORES + tid] = weight;
    }
    if (tid < 2u) {
      room[AT_SHRINK + tid] = shrink;
    }
    workgroupBarrier(); // the weights are complete
    let s0 = room[AT_SHRINK];
    let s1 = room[AT_SHRINK + 1u];
    a0 *= s0.x;
    b0 *= s0.x;
    a1 *= s0.y;
    b1 *= s0.y;
    a2 *= s0.z;
    b2 *= s0.z;
    a3 *= s0.w;
    b3 *= s0.w;
    if (HEADS == 8u) {
      a4 *= s1.x;
      b4 *= s1.x;
      a5 *= s1.y;
      b5 *= s1.y;
      a6 *= s1.z;
      b6 *= s1.z;
      a7 *= s1.w;
      b7 *= s1.w;
    }
    if (slice < SLICES) {
      for (var j = 0u; j < SLICE_PARTS; j += 1u) {
        // Past the end the last position again, whose weight is 0 there.
        let i = min(slice + j * SLICES, PART - 1u);
        let o = kv_octet(token.w, first + min(i, count - 1u), g, p.kv_heads, p.max_blocks);
        let v = v_octet(o + column);
        let s = select(0.0, v_scale(o), slice + j * SLICES < PART);
        let w0 = room[AT_SCORES + 2u * i] * s;
        a0 += w0.x * v.a;
        b0 += w0.x * v.b;
        a1 += w0.y * v.a;
        b1 += w0.y * v.b;
        a2 += w0.z * v.a;
        b2 += w0.z * v.b;
        a3 += w0.w * v.a;
        b3 += w0.w * v.b;
        if (HEADS == 8u) {
          let w1 = room[AT_SCORES + 2u * i + 1u] * s;
          a4 += w1.x * v.a;
          b4 += w1.x * v.b;
          a5 += w1.y * v.a;
          b5 += w1.y * v.b;
          a6 += w1.z * v.a;
          b6 += w1.z * v.b;
          a7 += w1.w * v.a;
          b7 += w1.w * v.b;
        }
      }
    }
  }

  // The totals of all positions, by eights and then by all.
  workgroupBarrier(); // the weights of the last round have been read
  if (tid < 2u * PART) {
    room[AT_SCORES + tid] = total;
  }
  if (tid < 2u) {
    room[AT_SHRINK + tid] = largest;
  }
  workgroupBarrier(); // the totals of the positions are complete
  if (tid < 16u) {
    var sum = vec4<f32>(0.0);
    for (var i = 0u; i < 8u; i += 1u) {
      sum += room[AT_SCORES + tid / 2u * 16u + 2u * i + quad];
    }
    room[AT_LANES + tid] = sum;
  }
  workgroupBarrier(); // the totals of eight positions each are complete
  var lo = vec4<f32>(0.0);
  var hi = vec4<f32>(0.0);
  for (var i = 0u; i < 8u; i += 1u) {
    lo += room[AT_LANES + 2u * i];
    hi += room[AT_LANES + 2u * i + 1u];
  }
  if (tid == 0u) {
    room[AT_TOTAL] = lo;
    room[AT_TOTAL + 1u] = hi;
  }
  workgroupBarrier(); // the totals are complete
  if (WHOLE == 0u && tid < HEADS && h0 + tid < heads) {
    partial[at(wg, h0 + tid, VECS)] = vec4<f32>(room[AT_SHRINK + tid / 4u][tid % 4u], room[AT_TOTAL + tid / 4u][tid % 4u], 0.0, 0.0);
  }
  let over_lo = ending(lo);
  finish(wg, tid, h0, heads, over_lo.xy, a0, b0, a1, b1);
  finish(wg, tid, h0 + 2u, heads, over_lo.zw, a2, b2, a3, b3);
  if (HEADS == 8u) {
    let over_hi = ending(hi);
    finish(wg, tid, h0 + 4u, heads, over_hi.xy, a4, b4, a5, b5);
    finish(wg, tid, h0 + 6u, heads, over_hi.zw, a6, b6, a7, b7);
  }
}
