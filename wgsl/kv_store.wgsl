// kv_store: puts the keys and values of new tokens into their slots of the paged cache.
//
//   k_cache[slot / 16, g, slot % 16] = qkv[m, k_offset + g*D ..],  v_cache likewise; slot 0xFFFFFFFF stores nothing
//
// Shapes   M tokens, G KV heads, D = HEAD_DIM, N blocks of 16 tokens
//   tokens   [M] vec4<u32>                              read        (id, position, slot, sequence)
//   qkv      [M, row_stride] f32                        read
//   k_cache  [N, G, 16, D] f16 pairs or f32 in u32      read_write  element 2i in the low half
//   v_cache  [N, G, 16, D] the same                     read_write
// Grid     ceil(M*G*D/2 / WG) workgroups of WG, spread over x and y.
// Traffic  reads 8*M*G*D bytes, writes 4*M*G*D (f16) or 8*M*G*D (f32).
// Storage  no workgroup memory.
// Numerics f16: rounded as the device does, at most one unit in the last place off; beyond +-65504 it saturates, for an
//          infinity in the cache would make NaN of every later token.
// Needs    nothing beyond the portable subset.
// Ref      internal/ref, KVStore.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 64u;        // invocations per workgroup
const HEAD_DIM: u32 = 128u; // D, a multiple of 16
const KV_TYPE: u32 = 1u;    // of the cache: 0 f32, 1 f16; kv_store_i8 is for int8

struct Params {
  kv_heads: u32,   // G
  row_stride: u32, // elements of a row of qkv, an even number
  k_offset: u32,   // first element of the keys in a row, an even number
  v_offset: u32,   // first element of the values in a row, an even number
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
@group(0) @binding(3) var<storage, read> qkv: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read_write> k_cache: array<u32>;
@group(0) @binding(5) var<storage, read_write> v_cache: array<u32>;

const BLOCK: u32 = 16u; // tokens per block
const PAIRS: u32 = HEAD_DIM / 2u;
const F16_MAX: f32 = 65504.0;

fn pack_half(v: vec2<f32>) -> u32 {
  return pack2x16float(clamp(v, vec2<f32>(-F16_MAX), vec2<f32>(F16_MAX)));
}

@compute @workgroup_size(WG)
fn kv_store(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
            @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * nwg.x + wg.x) * WG + tid;
  let per_row = p.kv_heads * PAIRS;
  let m = i / per_row;
  if (m >= step.rows) {
    return;
  }
  let slot = tokens[m].z;
  if (slot == 0xFFFFFFFFu) {
    return;
  }
  let j = i - m * per_row;
  let g = j / PAIRS;
  let row = m * (p.row_stride / 2u);
  let k = qkv[row + p.k_offset / 2u + j];
  let v = qkv[row + p.v_offset / 2u + j];
  let at = ((slot / BLOCK * p.kv_heads + g) * BLOCK + slot % BLOCK) * PAIRS + (j - g * PAIRS);
  if (KV_TYPE == 1u) {
    k_cache[at] = pack_half(k);
    v_cache[at] = pack_half(v);
  } else {
    k_cache[2u * at] = bitcast<u32>(k.x);
    k_cache[2u * at + 1u] = bitcast<u32>(k.y);
    v_cache[2u * at] = bitcast<u32>(v.x);
    v_cache[2u * at + 1u] = bitcast<u32>(v.y);
  }
}
