// paged_attn_decode: attention of single tokens over their paged KV cache, the context split over workgroups.
//
//   sums = sum over t of exp(score(t) - largest) * v[t],  score(t) = scale * dot(q[m,h], k[t, h / (H/G)])
//
// over the positions t <= position(m) of one partition. Partition i has the tokens [i*PART, (i+1)*PART) and the same again
// every parts*PART tokens, so that any context fits. paged_attn_reduce combines the partitions. A dispatch computes the tokens
// row0..row0+rows-1 of the step, R at most, so that what lies between the two kernels is bounded.
//
// Shapes   M tokens, S sequences, H query heads, G KV heads (H a multiple of G), D = HEAD_DIM, N blocks of 16 tokens
//   tokens        [M] vec4<u32>                    read   (id, position, slot, sequence)
//   block_tables  [S, max_blocks] u32              read   entries past a sequence's end are never read
//   qkv           [M, row_stride] f32              read   the queries are the first H*D elements of a row
//   k_cache       [N, G, 16, D] by KV_TYPE         read   slots past a sequence's end are never read
//   v_cache       [N, G, 16, D] the same           read
//   partial       [R, H, parts, D+4] f32           write  D sums, the largest score, the sum of exponentials, two unused
// Grid     (H, parts, R) workgroups of WG. A partition without tokens writes the sums 0, the score -FLT_MAX and the sum 0.
// Traffic  reads 4*D bytes (f16) of cache per position and KV head if the H/G heads that share it also share a cache, H/G
//          times that if not; writes 4*M*H*parts*(D+4). Bound by memory.
// Storage  4*D + 8*PART + 36*WG bytes of workgroup memory.
// Numerics online softmax in f32; within 2e-5 of ref over the values in the cache.
// Needs    lib_kv, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, PagedAttnDecode.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 64u;        // invocations per workgroup, at least D/8
const PART: u32 = 64u;      // tokens per partition, the same as WG
const HEAD_DIM: u32 = 128u; // D, a multiple of 16, at most 256
const KV_TYPE: u32 = 1u;    // of the cache: 0 f32, 1 f16, 2 int8 with scales

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
@group(0) @binding(7) var<storage, read_write> partial: array<f32>;

const LOWEST: f32 = -3.4028234e38; // -FLT_MAX; WGSL has no infinity
const OCTETS: u32 = HEAD_DIM / 8u;
const VECS: u32 = HEAD_DIM / 4u;
const SLICES: u32 = WG / OCTETS; // invocations that share an octet of the sums, each with every SLICES-th token

var<workgroup> context: u32; // positions that this token sees
var<workgroup> q: array<vec4<f32>, VECS>;
var<workgroup> scores: array<f32, PART>;
var<workgroup> weights: array<f32, PART>;
var<workgroup> slice_a: array<vec4<f32>, WG>;
var<workgroup> slice_b: array<vec4<f32>, WG>;
var<workgroup> totals: array<f32, WG>;

@compute @workgroup_size(WG)
fn paged_attn_decode(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) tid: u32) {
  let h = wg.x;
  let part = wg.y;
  let m = p.row0 + wg.z;
  if (wg.z >= p.rows || m >= step.rows) { // the same for the whole workgroup
    return;
  }
  let token = tokens[m];
  let g = h / (p.heads / p.kv_heads);
  if (tid == 0u) {
    context = token.y + 1u;
  }
  for (var i = tid; i < VECS; i += WG) {
    q[i] = qkv[m * p.row_stride / 4u + h * VECS + i] * p.scale;
  }
  // Also a barrier: q is complete. The load tells the compiler that the loop below is the same for all.
  let n = workgroupUniformLoad(&context);

  let column = tid % OCTETS;
  let slice = tid / OCTETS;
  var largest = LOWEST;
  var total = 0.0; // of the tokens whose scores this invocation computes
  var a = vec4<f32>(0.0);
  var b = vec4<f32>(0.0);
  for (var first = part * PART; first < n; first += p.parts * PART) {
    let t = first + tid;
    var score = LOWEST;
    if (t < n) {
      let o = kv_octet(token.w, t, g, p.kv_heads, p.max_blocks);
      var sum = vec4<f32>(0.0);
      for (var i = 0u; i < OCTETS; i += 1u) {
        let k = k_octet(o + i);
        sum += q[2u * i] * k.a + q[2u * i + 1u] * k.b;
      }
      score = ((sum.x + sum.y) + (sum.z + sum.w)) * k_scale(o);
    }
    scores[tid] = score;
    workgroupBarrier(); // scores is complete; weights of the round before are no longer needed
    var now = largest;
    for (var i = 0u; i < PART; i += 1u) {
      now = max(now, scores[i]);
    }
    let shrink = exp(largest - now);
    largest = now;
    let weight = select(0.0, exp(score - now), t < n);
    total = total * shrink + weight;
    weights[tid] = weight;
    workgroupBarrier(); // weights is complete; scores may be overwritten
    a *= shrink;
    b *= shrink;
    if (slice < SLICES) {
      let count = min(PART, n - first); // never past the end: whatever lies there may be NaN
      for (var i = slice; i < count; i += SLICES) {
        let o = kv_octet(token.w, first + i, g, p.kv_heads, p.max_blocks);
        let v = v_octet(o + column);
        let w = weights[i] * v_scale(o);
        a += w * v.a;
        b += w * v.b;
      }
    }
  }

  slice_a[tid] = a;
  slice_b[tid] = b;
  totals[tid] = total;
  workgroupBarrier(); // the slices and totals are complete
  let out = ((wg.z * p.heads + h) * p.parts + part) * (HEAD_DIM + 4u);
  if (tid < OCTETS) {
    for (var i = 1u; i < SLICES; i += 1u) {
      a += slice_a[i * OCTETS + tid];
      b += slice_b[i * OCTETS + tid];
    }
    let at = out + 8u * tid;
    partial[at] = a.x;
    partial[at + 1u] = a.y;
    partial[at + 2u] = a.z;
    partial[at + 3u] = a.w;
    partial[at + 4u] = b.x;
    partial[at + 5u] = b.y;
    partial[at + 6u] = b.z;
    partial[at + 7u] = b.w;
  }
  if (tid == WG - 1u) {
    var sum = 0.0;
    for (var i = 0u; i < WG; i += 1u) {
      sum += totals[i];
    }
    partial[out + HEAD_DIM] = largest;
    partial[out + HEAD_DIM + 1u] = sum;
  }
}
