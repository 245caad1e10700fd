// paged_attn_join: combines the many partitions of long contexts of paged_attn_few.
//
//   out[m,h] = sum_i exp(largest_i - largest) * sums_i / sum_i exp(largest_i - largest) * total_i
//
// over the partitions i that token m has. One workgroup serves a head: each of its SLICES takes four partitions, all of whose loads are
// on their way at once.
//
// Shapes   M tokens, at most 4, H query heads, D = HEAD_DIM
//   tokens   [4] vec4<u32>               read   (id, position, slot, sequence)
//   partial  [M, H, parts, D+4] f32      read   D sums, the largest score, the sum of exponentials, two unused; parts is at most 4*SLICES
//   out      [M, H*D] f32                write
// Grid     (H, M) workgroups of WG.
// Traffic  reads 4*M*H*parts*(D+4) bytes, writes 4*M*H*D. Bound by latency.
// Storage  16*WG + 8*SLICES bytes of workgroup memory.
// Numerics f32; within 1e-5 of ref.
// Needs    nothing beyond the portable subset.
// Ref      internal/ref, PagedAttnReduce.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 256u;       // invocations per workgroup
const HEAD_DIM: u32 = 128u; // D, a multiple of 16, at most 256
const PART: u32 = 64u;      // tokens per partition

struct Params {
  heads: u32, // H
  parts: u32, // partitions of a context
  row0: u32,  // 0
  rows: u32,  // most tokens
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
@group(0) @binding(3) var<storage, read> partial: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> out: array<vec4<f32>>;

const VECS: u32 = HEAD_DIM / 4u;
const EACH: u32 = VECS + 1u; // vec4 of a partition
const SLICES: u32 = 8u;
const LANES: u32 = WG / SLICES;

var<workgroup> sums: array<vec4<f32>, WG>;
var<workgroup> totals: array<f32, SLICES>;
var<workgroup> scores: array<f32, SLICES>;

@compute @workgroup_size(WG)
fn paged_attn_join(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) tid: u32) {
  let m = wg.y;
  if (m >= step.rows) { // the same for the whole workgroup
    return;
  }
  let lane = tid % LANES;
  let slice = tid / LANES;
  let count = min(tokens[m].y / PART + 1u, p.parts);
  let last = count - 1u;
  let i = 4u * slice;
  let head = (m * p.heads + wg.x) * p.parts;
  let a0 = (head + min(i, last)) * EACH;
  let a1 = (head + min(i + 1u, last)) * EACH;
  let a2 = (head + min(i + 2u, last)) * EACH;
  let a3 = (head + min(i + 3u, last)) * EACH;
  let t0 = partial[a0 + VECS];
  let t1 = partial[a1 + VECS];
  let t2 = partial[a2 + VECS];
  let t3 = partial[a3 + VECS];
  let found = vec4<f32>(t0.x, t1.x, t2.x, t3.x);
  if (lane == 0u) {
    scores[slice] = max(max(found.x, found.y), max(found.z, found.w));
  }
  workgroupBarrier(); // scores are complete
  let largest = max(max(max(scores[0], scores[1]), max(scores[2], scores[3])), max(max(scores[4], scores[5]), max(scores[6], scores[7])));
  let there = vec4<u32>(i) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(count);
  let e = select(vec4<f32>(0.0), exp(found - vec4<f32>(largest)), there);
  if (lane == 0u) {
    totals[slice] = dot(e, vec4<f32>(t0.y, t1.y, t2.y, t3.y));
  }
  for (var d0 = 0u; d0 < VECS; d0 += LANES) {
    let d = min(d0 + lane, VECS - 1u);
    sums[tid] = (e.x * partial[a0 + d] + e.y * partial[a1 + d]) + (e.z * partial[a2 + d] + e.w * partial[a3 + d]);
    workgroupBarrier(); // sums and totals are complete
    if (slice == 0u && d0 + lane < VECS) {
      let all = ((sums[lane] + sums[LANES + lane]) + (sums[2u * LANES + lane] + sums[3u * LANES + lane]))
              + ((sums[4u * LANES + lane] + sums[5u * LANES + lane]) + (sums[6u * LANES + lane] + sums[7u * LANES + lane]));
      let total = ((totals[0] + totals[1]) + (totals[2] + totals[3])) + ((totals[4] + totals[5]) + (totals[6] + totals[7]));
      out[(m * p.heads + wg.x) * VECS + d] = all / total;
    }
    workgroupBarrier(); // sums may be overwritten
  }
}
