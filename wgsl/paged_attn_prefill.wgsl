// paged_attn_prefill: causal attention of many tokens over their paged KV cache.
//
//   out[m,h] = sum over t <= position(m) of softmax_t(scale * dot(q[m,h], k[t,g])) * v[t,g],   g = h / (H/G)
//
// One workgroup takes QUERIES neighbouring tokens and one head. It walks the runs of tokens of one sequence among them
// (most often one run), and for each the cache, TILE positions at a time: keys into workgroup memory, scores, weights,
// values into the same memory, sums. LANES invocations share a token; each keeps every LANES-th vector of its sums in
// registers, by name, for an array would be indexed in memory.
//
// Shapes   M tokens, S sequences, H query heads, G KV heads (H a multiple of G), D = HEAD_DIM, N blocks of 16 tokens
//   tokens        [M] vec4<u32>                    read   (id, position, slot, sequence)
//   block_tables  [S, max_blocks] u32              read   entries past a sequence's end are never read
//   qkv           [M, row_stride] f32              read   the queries are the first H*D elements of a row
//   k_cache       [N, G, 16, D] by KV_TYPE         read   slots past a sequence's end are never read
//   v_cache       [N, G, 16, D] the same           read
//   out           [M, H*D] f32                     write
// Grid     (ceil(M/QUERIES), H, 1) workgroups of WG.
// Traffic  reads 4*D bytes (f16) of cache per position, head and QUERIES tokens, writes 4*M*H*D. Bound by arithmetic.
// Storage  16*TILE*(D/4 + 1) + 8*QUERIES*TILE + 8 bytes of workgroup memory.
// Numerics online softmax in f32; within 2e-5 of ref over the values in the cache.
// Needs    lib_kv, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, PagedAttn.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const TILE: u32 = 16u;      // positions in workgroup memory at a time: 16, or 8 for D above 128
const HEAD_DIM: u32 = 128u; // D, a multiple of 16, at most 256
const KV_TYPE: u32 = 1u;    // of the cache: 0 f32, 1 f16, 2 int8 with scales
const WG: u32 = 128u;       // invocations per workgroup: QUERIES * LANES
const QUERIES: u32 = 16u;   // tokens per workgroup
const LANES: u32 = 8u;      // invocations per token

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

const LOWEST: f32 = -3.4028234e38; // -FLT_MAX; WGSL has no infinity
const OCTETS: u32 = HEAD_DIM / 8u;
const VECS: u32 = HEAD_DIM / 4u;
const PITCH: u32 = VECS + 1u; // vectors from one line of the tile to the next: one more, so that lines begin in different banks
const TILE_VECS: u32 = TILE * PITCH;
const TILE_OCTETS: u32 = TILE * OCTETS;
const PAIRS: u32 = QUERIES * TILE;

struct Run {
  end: u32,     // index in the workgroup's tokens of the first one that does not belong to the run
  context: u32, // positions that the run's last token sees
}

var<workgroup> run: Run;
var<workgroup> tile: array<vec4<f32>, TILE_VECS>; // keys, then values
var<workgroup> scores: array<f32, PAIRS>;
var<workgroup> weights: array<f32, PAIRS>;

@compute @workgroup_size(WG)
fn paged_attn_prefill(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) tid: u32) {
  let m0 = wg.x * QUERIES;
  let h = wg.y;
  if (m0 >= step.rows) { // the same for the whole workgroup
    return;
  }
  let count = min(QUERIES, step.rows - m0);
  let g = h / (p.heads / p.kv_heads);
  let query = tid / LANES;
  let lane = tid % LANES;
  let m = m0 + min(query, count - 1u);
  let token = tokens[m];
  let qo = m * p.row_stride / 4u + h * VECS;

  var largest = LOWEST;
  var total = 0.0;
  var a0 = vec4<f32>(0.0);
  var a1 = vec4<f32>(0.0);
  var a2 = vec4<f32>(0.0);
  var a3 = vec4<f32>(0.0);
  var a4 = vec4<f32>(0.0);
  var a5 = vec4<f32>(0.0);
  var a6 = vec4<f32>(0.0);
  var a7 = vec4<f32>(0.0);

  var begin = 0u; // of the run, index in the workgroup's tokens
  for (var round = 0u; round < QUERIES && begin < count; round += 1u) {
    let seq = tokens[m0 + begin].w;
    if (tid == 0u) {
      var end = begin;
      var context = 0u;
      while (end < count && tokens[m0 + end].w == seq) {
        context = max(context, tokens[m0 + end].y + 1u);
        end += 1u;
      }
      run = Run(end, context);
    }
    // The load is also a barrier, and tells the compiler that the loops are the same for all.
    let current = workgroupUniformLoad(&run);
    let n = select(0u, token.y + 1u, query >= begin && query < current.end); // positions that this token sees, in this run
    for (var first = 0u; first < current.context; first += TILE) {
      for (var i = tid; i < TILE_OCTETS; i += WG) {
        let r = i / OCTETS;
        let c = i - r * OCTETS;
        if (first + r < current.context) {
          let o = kv_octet(seq, first + r, g, p.kv_heads, p.max_blocks);
          let k = k_octet(o + c);
          let s = k_scale(o);
          tile[r * PITCH + 2u * c] = k.a * s;
          tile[r * PITCH + 2u * c + 1u] = k.b * s;
        }
      }
      workgroupBarrier(); // the keys are complete
      for (var r = lane; r < TILE; r += LANES) {
        var score = LOWEST;
        if (first + r < n) {
          var sum = vec4<f32>(0.0);
          for (var c = 0u; c < VECS; c += 1u) {
            sum += qkv[qo + c] * tile[r * PITCH + c];
          }
          score = ((sum.x + sum.y) + (sum.z + sum.w)) * p.scale;
        }
        scores[query * TILE + r] = score;
      }
      workgroupBarrier(); // the scores are complete; the keys are no longer needed
      var now = largest;
      for (var r = 0u; r < TILE; r += 1u) {
        now = max(now, scores[query * TILE + r]);
      }
      let shrink = exp(largest - now);
      largest = now;
      for (var r = lane; r < TILE; r += LANES) {
        weights[query * TILE + r] = exp(scores[query * TILE + r] - now);
      }
      for (var i = tid; i < TILE_OCTETS; i += WG) {
        let r = i / OCTETS;
        let c = i - r * OCTETS;
        if (first + r < current.context) {
          let o = kv_octet(seq, first + r, g, p.kv_heads, p.max_blocks);
          let v = v_octet(o + c);
          let s = v_scale(o);
          tile[r * PITCH + 2u * c] = v.a * s;
          tile[r * PITCH + 2u * c + 1u] = v.b * s;
        }
      }
      workgroupBarrier(); // the values and weights are complete
      total *= shrink;
      a0 *= shrink;
      a1 *= shrink;
      a2 *= shrink;
      a3 *= shrink;
      a4 *= shrink;
      a5 *= shrink;
      a6 *= shrink;
      a7 *= shrink;
      // Never past what this token sees: whatever lies there may be NaN. The subtraction wraps only where the loop is empty.
      let seen = select(0u, min(TILE, n - first), first < n);
      for (var r = 0u; r < seen; r += 1u) {
        let weight = weights[query * TILE + r];
        total += weight;
        let at = r * PITCH + lane;
        if (lane < VECS) {
          a0 += weight * tile[at];
        }
        if (VECS > 8u && lane + 8u < VECS) {
          a1 += weight * tile[at + 8u];
        }
        if (VECS > 16u && lane + 16u < VECS) {
          a2 += weight * tile[at + 16u];
        }
        if (VECS > 24u && lane + 24u < VECS) {
          a3 += weight * tile[at + 24u];
        }
        if (VECS > 32u && lane + 32u < VECS) {
          a4 += weight * tile[at + 32u];
        }
        if (VECS > 40u && lane + 40u < VECS) {
          a5 += weight * tile[at + 40u];
        }
        if (VECS > 48u && lane + 48u < VECS) {
          a6 += weight * tile[at + 48u];
        }
        if (VECS > 56u && lane + 56u < VECS) {
          a7 += weight * tile[at + 56u];
        }
      }
      workgroupBarrier(); // all have read the values before the next round overwrites them
    }
    begin = current.end;
  }

  if (query < count) {
    let at = (m * p.heads + h) * VECS + lane;
    if (lane < VECS) {
      out[at] = a0 / total;
    }
    if (VECS > 8u && lane + 8u < VECS) {
      out[at + 8u] = a1 / total;
    }
    if (VECS > 16u && lane + 16u < VECS) {
      out[at + 16u] = a2 / total;
    }
    if (VECS > 24u && lane + 24u < VECS) {
      out[at + 24u] = a3 / total;
    }
    if (VECS > 32u && lane + 32u < VECS) {
      out[at + 32u] = a4 / total;
    }
    if (VECS > 40u && lane + 40u < VECS) {
      out[at + 40u] = a5 / total;
    }
    if (VECS > 48u && lane + 48u < VECS) {
      out[at + 48u] = a6 / total;
    }
    if (VECS > 56u && lane + 56u < VECS) {
      out[at + 56u] = a7 / total;
    }
  }
}
