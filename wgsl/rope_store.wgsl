// rope_store: rotary position embedding of queries and keys, as rope has it, and the storing of keys and values, as kv_store has it. It
// also ends a linear layer whose K was split over workgroups.
//
//   q[m,h] = rotated q[m,h], in place;  with S parts queries, keys and values are bias + sum over s of parts[s, m]
//   k_cache[slot / 16, g, slot % 16] = rotated k[m,g],  v_cache likewise v[m,g]; slot 0xFFFFFFFF stores nothing
//
// An invocation has four elements of a head: two pairs.
//
// Shapes   M tokens, H query heads, G KV heads, D = HEAD_DIM, N blocks of 16 tokens
//   tokens   [M] vec4<u32>                              read        (id, position, slot, sequence)
//   table    [positions, D/2] vec2<f32>                 read        (cos, sin), computed by the caller in float64
//   parts    [S, M, (H+2*G)*D] f32                      read        a dummy with S = 0
//   bias     [(H+2*G)*D] f32                            read        a dummy without bias
//   qkv      [M, row_stride] f32                        read_write  H queries, G keys, G values of a row side by side; only queries
//                                                                   are written, and with parts nothing is read
//   k_cache  [N, G, 16, D] f16 pairs or f32 in u32      read_write  element 2i in the low half
//   v_cache  [N, G, 16, D] the same                     read_write
// Grid     ceil(M*(H+2*G)*D/4 / WG) workgroups of WG, spread over x and y.
// Traffic  reads 4*max(S,1)*M*(H+2*G)*D bytes, and of the table 4*M*D; writes 4*M*H*D, and 4*M*G*D (f16) or 8*M*G*D (f32) into the cache.
// Storage  no workgroup memory.
// Numerics those of rope and kv_store; parts are added in their order, and bias after them.
// Needs    lib_parts, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, RopeStore.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 64u;        // invocations per workgroup
const HEAD_DIM: u32 = 128u; // D, a multiple of 16
const HALF_SPLIT: u32 = 0u; // 1: pairs are half a head apart
const KV_TYPE: u32 = 1u;    // of the cache: 0 f32, 1 f16

struct Params {
  heads: u32,      // H
  kv_heads: u32,   // G
  row_stride: u32, // elements of a row of qkv, an even number
  parts: u32,      // S, 0: qkv is complete
  flags: u32,      // bit 1: there is a bias
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

alias Part = vec2<f32>;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read> tokens: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> table: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read> parts: array<Part>;
@group(0) @binding(5) var<storage, read> bias: array<vec2<f32>>;
@group(0) @binding(6) var<storage, read_write> qkv: array<vec2<f32>>;
@group(0) @binding(7) var<storage, read_write> k_cache: array<u32>;
@group(0) @binding(8) var<storage, read_write> v_cache: array<u32>;

const BLOCK: u32 = 16u; // tokens per block
const PAIRS: u32 = HEAD_DIM / 2u;
const QUADS: u32 = HEAD_DIM / 4u;
const F16_MAX: f32 = 65504.0;

fn turned(v: vec2<f32>, cs: vec2<f32>) -> vec2<f32> {
  return vec2<f32>(v.x * cs.x - v.y * cs.y, v.y * cs.x + v.x * cs.y);
}

fn pack_half(v: vec2<f32>) -> u32 {
  return pack2x16float(clamp(v, vec2<f32>(-F16_MAX), vec2<f32>(F16_MAX)));
}

// total is pair i of row m, of which there are width, when all parts are added.
fn total(m: u32, i: u32, width: u32) -> vec2<f32> {
  var sum = add_parts(vec2<f32>(0.0), m * width + i, step.rows * width);
  if ((p.flags & 2u) != 0u) {
    sum += bias[i];
  }
  return sum;
}

@compute @workgroup_size(WG)
fn rope_store(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
              @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * nwg.x + wg.x) * WG + tid;
  let per_row = (p.heads + 2u * p.kv_heads) * QUADS;
  let m = i / per_row;
  if (m >= step.rows) {
    return;
  }
  let j = i - m * per_row;
  let head = j / QUADS;
  let quad = j - head * QUADS;
  let token = tokens[m];
  // Both are pairs of neighbours: elements 4*quad and on, or with HALF_SPLIT 2*quad and on and those half a head further.
  let half_split = HALF_SPLIT == 1u && head < p.heads + p.kv_heads;
  let first = select(2u * quad, quad, half_split);
  let second = select(first + 1u, quad + QUADS, half_split);
  let start = m * (p.row_stride / 2u) + head * PAIRS;
  var a: vec2<f32>;
  var b: vec2<f32>;
  if (p.parts > 0u) {
    let width = (p.heads + 2u * p.kv_heads) * PAIRS;
    a = total(m, head * PAIRS + first, width);
    b = total(m, head * PAIRS + second, width);
  } else {
    a = qkv[start + first];
    b = qkv[start + second];
  }
  if (head < p.heads + p.kv_heads) {
    let cs0 = table[token.y * PAIRS + 2u * quad];
    let cs1 = table[token.y * PAIRS + 2u * quad + 1u];
    if (HALF_SPLIT == 1u) {
      let x = turned(vec2<f32>(a.x, b.x), cs0);
      let y = turned(vec2<f32>(a.y, b.y), cs1);
      a = vec2<f32>(x.x, y.x);
      b = vec2<f32>(x.y, y.y);
    } else {
      a = turned(a, cs0);
      b = turned(b, cs1);
    }
  }
  if (head < p.heads) {
    qkv[start + first] = a;
    qkv[start + second] = b;
    return;
  }
  if (token.z == 0xFFFFFFFFu) {
    return;
  }
  let is_key = head < p.heads + p.kv_heads;
  let g = head - p.heads - select(p.kv_heads, 0u, is_key);
  let base = ((token.z / BLOCK * p.kv_heads + g) * BLOCK + token.z % BLOCK) * PAIRS;
  if (KV_TYPE == 1u) {
    if (is_key) {
      k_cache[base + first] = pack_half(a);
      k_cache[base + second] = pack_half(b);
    } else {
      v_cache[base + first] = pack_half(a);
      v_cache[base + second] = pack_half(b);
    }
    return;
  }
  let at0 = 2u * (base + first);
  let at1 = 2u * (base + second);
  if (is_key) {
    k_cache[at0] = bitcast<u32>(a.x);
    k_cache[at0 + 1u] = bitcast<u32>(a.y);
    k_cache[at1] = bitcast<u32>(b.x);
    k_cache[at1 + 1u] = bitcast<u32>(b.y);
  } else {
    v_cache[at0] = bitcast<u32>(a.x);
    v_cache[at0 + 1u] = bitcast<u32>(a.y);
    v_cache[at1] = bitcast<u32>(b.x);
    v_cache[at1 + 1u] = bitcast<u32>(b.y);
  }
}
