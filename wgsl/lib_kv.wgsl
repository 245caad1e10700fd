// lib_kv: reading the paged cache, for kernels that bind `k_cache` and `v_cache` as array<vec4<u32>>, `block_tables` as
// array<u32> and have the constants HEAD_DIM and KV_F16.
//
// Layout   [N blocks, G KV heads, 16 tokens, HEAD_DIM], f16 pairs (element 2i in the low half of word i) or f32. A vector of
//          HEAD_DIM elements is HEAD_DIM/8 octets of 8.

const BLOCK: u32 = 16u; // tokens per block

struct Octet { a: vec4<f32>, b: vec4<f32> }

// kv_octet is the index of the first octet of position t of sequence seq for KV head g. Only positions that the sequence
// has may be asked for: block table entries past its end mean nothing.
fn kv_octet(seq: u32, t: u32, g: u32, kv_heads: u32, max_blocks: u32) -> u32 {
  let block = block_tables[seq * max_blocks + t / BLOCK];
  return ((block * kv_heads + g) * BLOCK + t % BLOCK) * (HEAD_DIM / 8u);
}

fn half_octet(q: vec4<u32>) -> Octet {
  return Octet(vec4<f32>(unpack2x16float(q.x), unpack2x16float(q.y)),
               vec4<f32>(unpack2x16float(q.z), unpack2x16float(q.w)));
}

fn k_octet(o: u32) -> Octet {
  if (KV_F16 == 1u) {
    return half_octet(k_cache[o]);
  }
  return Octet(bitcast<vec4<f32>>(k_cache[2u * o]), bitcast<vec4<f32>>(k_cache[2u * o + 1u]));
}

fn v_octet(o: u32) -> Octet {
  if (KV_F16 == 1u) {
    return half_octet(v_cache[o]);
  }
  return Octet(bitcast<vec4<f32>>(v_cache[2u * o]), bitcast<vec4<f32>>(v_cache[2u * o + 1u]));
}
