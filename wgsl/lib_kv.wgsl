// lib_kv: reading the paged cache, for kernels that bind `k_cache` and `v_cache` as array<vec4<u32>>, `block_tables` as
// array<u32> and have the constants HEAD_DIM and KV_TYPE.
//
// Layout   [N blocks, G KV heads, 16 tokens, HEAD_DIM] as internal/quant/kv.go says: f32, f16 pairs, or bytes, where the 16
//          vectors of a block's head are followed by their 16 f16 scales. A vector of HEAD_DIM elements is HEAD_DIM/8 octets
//          of 8; octets of bytes come without the scale, which is one multiplication for a vector.

const BLOCK: u32 = 16u; // tokens per block

// HEAD_OCTETS is the distance from one head of a block to the next; 16 scales take as much room as 4 octets of bytes.
const HEAD_OCTETS: u32 = BLOCK * (HEAD_DIM / 8u) + (KV_TYPE / 2u) * 4u;

struct Octet { a: vec4<f32>, b: vec4<f32> }

// kv_octet is the index of the first octet of position t of sequence seq for KV head g. Only positions that the sequence
// has may be asked for: block table entries past its end mean nothing.
fn kv_octet(seq: u32, t: u32, g: u32, kv_heads: u32, max_blocks: u32) -> u32 {
  let block = block_tables[seq * max_blocks + t / BLOCK];
  return (block * kv_heads + g) * HEAD_OCTETS + (t % BLOCK) * (HEAD_DIM / 8u);
}

fn half_octet(q: vec4<u32>) -> Octet {
  return Octet(vec4<f32>(unpack2x16float(q.x), unpack2x16float(q.y)),
               vec4<f32>(unpack2x16float(q.z), unpack2x16float(q.w)));
}

// byte_octet decodes signed bytes as lib_weight_q8 does unsigned ones, which these are with 128 added.
fn byte_octet(lo: u32, hi: u32) -> Octet {
  let base = vec4<f32>(256.0 + 128.0);
  let mask = vec4<u32>(0x007F8000u);
  let one = vec4<u32>(0x43800000u); // 256.0
  let l = lo ^ 0x80808080u;
  let h = hi ^ 0x80808080u;
  let a = (vec4<u32>(l << 15u, l << 7u, l >> 1u, l >> 9u) & mask) | one;
  let b = (vec4<u32>(h << 15u, h << 7u, h >> 1u, h >> 9u) & mask) | one;
  return Octet(bitcast<vec4<f32>>(a) - base, bitcast<vec4<f32>>(b) - base);
}

// scale_word is where the scale of the vector lies whose first octet is o: index of the vec4, component, half.
fn scale_word(o: u32) -> vec3<u32> {
  let head = o / HEAD_OCTETS;
  let t = (o - head * HEAD_OCTETS) / (HEAD_DIM / 8u);
  return vec3<u32>((head + 1u) * (HEAD_OCTETS / 2u) - 2u + t / 8u, t % 8u / 2u, t % 2u);
}

fn k_octet(o: u32) -> Octet {
  if (KV_TYPE == 2u) {
    let c = (o & 1u) * 2u;
    return byte_octet(k_cache[o >> 1u][c], k_cache[o >> 1u][c + 1u]);
  }
  if (KV_TYPE == 1u) {
    return half_octet(k_cache[o]);
  }
  return Octet(bitcast<vec4<f32>>(k_cache[2u * o]), bitcast<vec4<f32>>(k_cache[2u * o + 1u]));
}

fn v_octet(o: u32) -> Octet {
  if (KV_TYPE == 2u) {
    let c = (o & 1u) * 2u;
    return byte_octet(v_cache[o >> 1u][c], v_cache[o >> 1u][c + 1u]);
  }
  if (KV_TYPE == 1u) {
    return half_octet(v_cache[o]);
  }
  return Octet(bitcast<vec4<f32>>(v_cache[2u * o]), bitcast<vec4<f32>>(v_cache[2u * o + 1u]));
}

// k_scale is what the octets of the vector are to be multiplied by whose first octet is o.
fn k_scale(o: u32) -> f32 {
  if (KV_TYPE != 2u) {
    return 1.0;
  }
  let at = scale_word(o);
  let pair = unpack2x16float(k_cache[at.x][at.y]);
  return select(pair.x, pair.y, at.z == 1u);
}

fn v_scale(o: u32) -> f32 {
  if (KV_TYPE != 2u) {
    return 1.0;
  }
  let at = scale_word(o);
  let pair = unpack2x16float(v_cache[at.x][at.y]);
  return select(pair.x, pair.y, at.z == 1u);
}
