// paged_attn_serial_part: attention over the paged KV cache without barriers, the context cut into partitions: one invocation
// for a token, a head and a partition.
//
//   sums = sum over t of exp(score(t) - largest) * v[t],  score(t) = scale * dot(q[m,h], k[t, h / (H/G)])
//
// over the positions t <= position(m) of the partition [i*PART, (i+1)*PART). Partitions cover the longest context.
// paged_attn_reduce combines them. A dispatch computes the tokens row0..row0+rows-1 of the step, R at most.
//
// Shapes   M tokens, S sequences, H query heads, G KV heads (H a multiple of G), D = HEAD_DIM, N blocks of 16 tokens
//   tokens        [M] vec4<u32>                    read   (id, position, slot, sequence)
//   block_tables  [S, max_blocks] u32              read   entries past a sequence's end are never read
//   qkv           [M, row_stride] f32              read   the queries are the first H*D elements of a row
//   k_cache       [N, G, 16, D] by KV_TYPE         read   slots past a sequence's end are never read
//   v_cache       [N, G, 16, D] the same           read
//   partial       [R, H, parts, D+2] f32           write  D sums, the largest score, the sum of exponentials
// Grid     ceil(R*H*parts / WG) workgroups of WG, spread over x and y. A partition without tokens writes the sums 0, the score
//          -FLT_MAX and the sum 0.
// Traffic  reads 4*D bytes (f16) of cache per position and head, writes 4*M*H*parts*(D+2).
// Storage  no workgroup memory; 4*D bytes for each invocation.
// Numerics online softmax in f32; within 2e-5 of ref over the values in the cache. PART keeps the loops of an invocation below
//          65,535 rounds together, where Mesa 22 ends them.
// Needs    lib_kv and lib_attn_serial, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, PagedAttnDecode.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 8u;         // invocations per workgroup
const PART: u32 = 4096u;    // tokens per partition, a multiple of 4
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

@compute @workgroup_size(WG)
fn paged_attn_serial_part(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
                          @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * nwg.x + wg.x) * WG + tid;
  let mh = i / p.parts;
  let part = i - mh * p.parts;
  let row = mh / p.heads;
  let m = p.row0 + row;
  if (row >= p.rows || m >= step.rows) {
    return;
  }
  let h = mh - row * p.heads;
  let token = tokens[m];
  attend(token.w, h / (p.heads / p.kv_heads), m * p.row_stride / 4u + h * VECS, part * PART,
         min(token.y + 1u, (part + 1u) * PART));
  let to = i * (HEAD_DIM + 2u);
  for (var d = 0u; d < VECS; d += 1u) {
    partial[to + 4u * d] = acc[d].x;
    partial[to + 4u * d + 1u] = acc[d].y;
    partial[to + 4u * d + 2u] = acc[d].z;
    partial[to + 4u * d + 3u] = acc[d].w;
  }
  partial[to + HEAD_DIM] = largest;
  partial[to + HEAD_DIM + 1u] = total;
}
