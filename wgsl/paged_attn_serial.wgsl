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
// Numerics online softmax in f32; within 2e-5 of ref over the values in the cache. Only for contexts of few positions (see
//          kernels/paged_attn_serial.go): Mesa 22 ends an invocation's loops after 65,535 rounds of all of them together.
//          Longer ones are cut into partitions by paged_attn_serial_part.
// Needs    lib_kv and lib_attn_serial, appended by wgsl.Source; nothing beyond the portable subset.
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

  attend(token.w, g, qo, 0u, n);
  for (var i = 0u; i < VECS; i += 1u) {
    out[mh * VECS + i] = acc[i] / total;
  }
}
