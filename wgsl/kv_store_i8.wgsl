// kv_store_i8: puts the keys and values of new tokens into their slots of a paged cache of bytes with scales.
//
//   scale = max(max |x| / 127, 2^-14) rounded to f16,  code[i] = round(x[i] / scale),  x = the keys or values of m and g
//
// One invocation writes 8 codes; each reads the whole vector to find its scale, which the first one of a vector also writes.
// Two tokens share the word of their scales, and may both be new: halves are put in by atomic operations. A NaN in a
// vector makes its scale a NaN, so that whoever attends to it sees one.
//
// Shapes   M tokens, G KV heads, D = HEAD_DIM, N blocks of 16 tokens
//   tokens   [M] vec4<u32>                           read        (id, position, slot, sequence); slot 0xFFFFFFFF stores nothing
//   qkv      [M, row_stride] f32                     read
//   k_cache  [N, G, (16, D) bytes + (16) f16] u32    read_write  as internal/quant/kv.go says
//   v_cache  [N, G, (16, D) bytes + (16) f16] u32    read_write
// Grid     ceil(M*G*D/4 / WG) workgroups of WG, spread over x and y.
// Traffic  reads 8*M*G*D bytes (D/8 times, from cache), writes 2*M*G*(D+2).
// Storage  no workgroup memory.
// Numerics the scale is exact: it is rounded to nearest even before it is packed. A code is off by one where x / scale is
//          within 1e-4 of half way between two. Beyond 127*65504 codes saturate.
// Needs    nothing beyond the portable subset.
// Ref      internal/ref, KVStore.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 64u;        // invocations per workgroup
const HEAD_DIM: u32 = 128u; // D, a multiple of 16

struct Params {
  kv_heads: u32,   // G
  row_stride: u32, // elements of a row of qkv, a multiple of 4
  k_offset: u32,   // first element of the keys in a row, a multiple of 4
  v_offset: u32,   // first element of the values in a row, a multiple of 4
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
@group(0) @binding(3) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> k_cache: array<atomic<u32>>;
@group(0) @binding(5) var<storage, read_write> v_cache: array<atomic<u32>>;

const BLOCK: u32 = 16u; // tokens per block
const OCTETS: u32 = HEAD_DIM / 8u;
const VECS: u32 = HEAD_DIM / 4u;
const SCALES: u32 = BLOCK * HEAD_DIM / 4u;        // first word of the scales in a head of a block
const HEAD_WORDS: u32 = SCALES + BLOCK / 2u;
const MAGNITUDE: u32 = 0x7FFFFFFFu;
const INFINITY: u32 = 0x7F800000u;

// half_scale rounds the scale to a half, to nearest even, still as f32: packing it is then exact on every device.
fn half_scale(most: u32) -> f32 {
  let scale = bitcast<u32>(clamp(bitcast<f32>(min(most, INFINITY - 1u)) * (1.0 / 127.0), 6.103515625e-5, 65504.0));
  return bitcast<f32>((scale + 0xFFFu + ((scale >> 13u) & 1u)) & 0xFFFFE000u);
}

fn pack_codes(x: vec4<f32>, inverse: f32) -> u32 {
  let c = vec4<u32>(vec4<i32>(round(clamp(x * inverse, vec4<f32>(-127.0), vec4<f32>(127.0))))) & vec4<u32>(0xFFu);
  return c.x | (c.y << 8u) | (c.z << 16u) | (c.w << 24u);
}

@compute @workgroup_size(WG)
fn kv_store_i8(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
               @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * nwg.x + wg.x) * WG + tid;
  let per_row = p.kv_heads * OCTETS * 2u;
  let m = i / per_row;
  if (m >= step.rows) {
    return;
  }
  let slot = tokens[m].z;
  if (slot == 0xFFFFFFFFu) {
    return;
  }
  let j = i - m * per_row; // (keys or values, head, octet)
  let vector = j / OCTETS;
  let octet = j - vector * OCTETS;
  let is_value = vector >= p.kv_heads;
  let g = select(vector, vector - p.kv_heads, is_value);
  let x = (m * p.row_stride + select(p.k_offset, p.v_offset, is_value)) / 4u + g * VECS;

  var most4 = vec4<u32>(0u); // of the magnitudes, as bits: they compare like the floats, with NaN above all
  for (var c = 0u; c < VECS; c += 1u) {
    most4 = max(most4, bitcast<vec4<u32>>(qkv[x + c]) & vec4<u32>(MAGNITUDE));
  }
  let most = max(max(most4.x, most4.y), max(most4.z, most4.w));
  let is_nan = most > INFINITY;
  let scale = half_scale(most);
  let inverse = 1.0 / scale;
  let lo = select(pack_codes(qkv[x + 2u * octet], inverse), 0u, is_nan);
  let hi = select(pack_codes(qkv[x + 2u * octet + 1u], inverse), 0u, is_nan);
  let half = select(pack2x16float(vec2<f32>(scale, 0.0)), 0x7E00u, is_nan);

  let head = (slot / BLOCK * p.kv_heads + g) * HEAD_WORDS;
  let t = slot % BLOCK;
  let at = head + t * VECS + 2u * octet;
  let scale_at = head + SCALES + t / 2u;
  let shift = 16u * (t % 2u);
  if (is_value) {
    atomicStore(&v_cache[at], lo);
    atomicStore(&v_cache[at + 1u], hi);
    if (octet == 0u) {
      atomicAnd(&v_cache[scale_at], 0xFFFF0000u >> shift);
      atomicOr(&v_cache[scale_at], half << shift);
    }
  } else {
    atomicStore(&k_cache[at], lo);
    atomicStore(&k_cache[at + 1u], hi);
    if (octet == 0u) {
      atomicAnd(&k_cache[scale_at], 0xFFFF0000u >> shift);
      atomicOr(&k_cache[scale_at], half << shift);
    }
  }
}
