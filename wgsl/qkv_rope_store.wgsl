// qkv_rope_store: RMS norm, the linear layer of queries, keys and values, their rotary position embedding, and the storing of keys
// and values, in one kernel for few tokens on adapters where a dispatch costs more than the reading that it saves.
//
//   z[m, j] = dot(x[m] * weight, w[j]) / sqrt(mean(x[m]^2) + eps)
//   queries of z, rotated, go to qkv; keys, rotated, and values go to their slots of the cache
//
// LANES invocations share 4*FOURS rows of w. Four of them are two pairs of one head: neighbours, or with HALF_SPLIT two neighbours and
// those half a head further.
//
// Shapes   M tokens, at most 4; H query and G key heads of D = HEAD_DIM; N = (H + 2*G)*D rows of w; K inputs, a multiple of 32
//   tokens  [4] vec4<u32>                read   (id, position, slot, sequence); a slot of 0xFFFFFFFF is not stored
//   x       [M, K] f32                   read
//   weight  [K] f32                      read   of the norm
//   w       [N, K] packed                read   as internal/quant/format.go says; the buffer is padded to 16 bytes
//   scales  [N, words] u32                    read
//   table   [positions, D/2] vec2<f32>   read   (cos, sin), computed by the caller in float64
//   qkv     [M, row_stride] f32          write  the first H*D elements of a row
//   k_cache [blocks, G, 16, D]           write  f16 pairs or f32, by KV_TYPE
//   v_cache [blocks, G, 16, D]           write
// Grid     ceil(N / (4*FOURS*WG/LANES)) workgroups of WG, M in z.
// Traffic  reads w and scales M times; writes 4*M*H*D bytes and the keys and values. Bound by latency.
// Storage  144*LANES + 16*FOURS*WG + 4*WG bytes of workgroup memory, less in the variant.
// Numerics f32 sums, LANES partial ones a row; f16 rounds to nearest and ends at 65504.
// Needs    a lib_weight file, lib_norm_linear, lib_place and lib_row_sums, appended by wgsl.Source; formats that are read 32 at a time;
//          nothing beyond the portable subset. A variant has lib_place_subgroups and lib_row_sums_subgroups.
// Ref      internal/ref, QKVRopeStore.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 64u;        // invocations per workgroup, a multiple of LANES
const LANES: u32 = 32u;     // invocations that share rows: 32, 64 or 96
const FOURS: u32 = 1u;      // fours of rows that they share: 1 or 2
const K: u32 = 1024u;       // inputs, as in Params
const HEADS: u32 = 20u;     // H + 2*G
const NORM: u32 = 1u;       // always
const HEAD_DIM: u32 = 128u; // D, a multiple of 16
const HALF_SPLIT: u32 = 0u; // 1: pairs are half a head apart
const KV_TYPE: u32 = 1u;    // 0: f32, 1: f16

struct Params {
  k: u32,          // K, elements, a multiple of 32
  heads: u32,      // H
  kv_heads: u32,   // G
  row_stride: u32, // elements of a row of qkv
  eps: f32,        // added to the mean square
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
@group(0) @binding(2) var<uniform> tokens: array<vec4<u32>, 4>;
@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read> scales: array<u32>;
@group(0) @binding(7) var<storage, read> table: array<vec2<f32>>;
@group(0) @binding(8) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(9) var<storage, read_write> k_cache: array<u32>;
@group(0) @binding(10) var<storage, read_write> v_cache: array<u32>;

const BLOCK: u32 = 16u; // tokens per block
const PAIRS: u32 = HEAD_DIM / 2u;
const F16_MAX: f32 = 65504.0;

const FOURS_OF_HEAD: u32 = HEAD_DIM / 4u;

fn input(m: u32, t: u32) -> vec4<f32> {
  return x[m * (K / 4u) + t];
}

fn norm_weight(t: u32) -> vec4<f32> {
  return weight[t];
}

// place is where the two pairs of a four begin in their head.
fn place(four: u32) -> vec2<u32> {
  let part = four % FOURS_OF_HEAD;
  if (HALF_SPLIT == 1u) {
    return vec2<u32>(2u * part, 2u * part + PAIRS);
  }
  return vec2<u32>(4u * part, 4u * part + 2u);
}

fn rows_of(four: u32) -> vec4<u32> {
  // Invocations past the last row must still reach the barriers.
  let at = place(four) + vec2<u32>(min(four / FOURS_OF_HEAD, HEADS - 1u) * HEAD_DIM);
  return vec4<u32>(at.x, at.x + 1u, at.y, at.y + 1u);
}

fn turn(v: vec2<f32>, cs: vec2<f32>) -> vec2<f32> {
  return vec2<f32>(v.x * cs.x - v.y * cs.y, v.y * cs.x + v.x * cs.y);
}

fn pack_half(v: vec2<f32>) -> u32 {
  return pack2x16float(clamp(v, vec2<f32>(-F16_MAX), vec2<f32>(F16_MAX)));
}

// store puts two neighbours into the keys or the values; at counts pairs.
fn store(key: bool, at: u32, v: vec2<f32>) {
  if (KV_TYPE == 1u) {
    if (key) {
      k_cache[at] = pack_half(v);
    } else {
      v_cache[at] = pack_half(v);
    }
    return;
  }
  let bits = bitcast<vec2<u32>>(v);
  if (key) {
    k_cache[2u * at] = bits.x;
    k_cache[2u * at + 1u] = bits.y;
  } else {
    v_cache[2u * at] = bits.x;
    v_cache[2u * at + 1u] = bits.y;
  }
}

// turns is the cosines and sines of a four at a position: those of its first pair and of its second, which with HALF_SPLIT are
// made of one of its neighbours each.
fn turns(position: u32, at: vec2<u32>) -> vec4<f32> {
  let row = position * PAIRS;
  if (HALF_SPLIT == 1u) {
    return vec4<f32>(table[row + at.x], table[row + at.x + 1u]);
  }
  return vec4<f32>(table[row + at.x / 2u], table[row + at.y / 2u]);
}

// put turns and stores the four sums of a token.
fn put(m: u32, head: u32, at: vec2<u32>, sums: vec4<f32>, cs: vec4<f32>) {
  var z = sums;
  if (head < p.heads + p.kv_heads) {
    if (HALF_SPLIT == 1u) {
      let first = turn(z.xz, cs.xy);
      let second = turn(z.yw, cs.zw);
      z = vec4<f32>(first.x, second.x, first.y, second.y);
    } else {
      z = vec4<f32>(turn(z.xy, cs.xy), turn(z.zw, cs.zw));
    }
  }
  if (head < p.heads) {
    let out = m * p.row_stride + head * HEAD_DIM;
    qkv[out + at.x] = z.x;
    qkv[out + at.x + 1u] = z.y;
    qkv[out + at.y] = z.z;
    qkv[out + at.y + 1u] = z.w;
    return;
  }
  let slot = tokens[m].z;
  if (slot == 0xFFFFFFFFu) {
    return;
  }
  let key = head < p.heads + p.kv_heads;
  let g = (head - p.heads) % p.kv_heads;
  let out = ((slot / BLOCK * p.kv_heads + g) * BLOCK + slot % BLOCK) * PAIRS;
  store(key, out + at.x / 2u, z.xy);
  store(key, out + at.y / 2u, z.zw);
}

// row computes what this workgroup has of token m.
fn row(m: u32, first: u32, held: Held, tid: u32, lane: u32, me: Place) {
  let four = first + lane;
  let head = four / FOURS_OF_HEAD;
  let at = place(four);
  var cs = vec4<f32>(0.0);
  if (lane < FOURS) {
    cs = turns(tokens[m].y, at); // on its way while the sums are made
  }
  let z = sum_row(m, first, held, tid, lane, me);
  if (lane < FOURS && head < HEADS) {
    put(m, head, at, z, cs);
  }
}

@compute @workgroup_size(WG)
fn qkv_rope_store(@builtin(workgroup_id) wg: vec3<u32>, me: Place) {
  let tid = index_of(me);
  let lane = tid % LANES;
  let first = (wg.x * (WG / LANES) + tid / LANES) * FOURS;
  let held = hold(first, 0u, lane);
  let m = wg.z;
  if (m < step.rows) { // the same for the whole workgroup
    row(m, first, held, tid, lane, me);
  }
}
