// paged_attn_tiled: causal attention of many tokens over their paged KV cache, by tiles of query rows and positions.
//
//   out[m,h] = sum over t <= position(m) of softmax_t(scale * dot(q[m,h], k[t,g])) * v[t,g],   g = h / (H/G)
//
// One workgroup takes ROWS query rows: neighbouring tokens, each with HEADS of the query heads that share a KV head. It walks the runs
// of tokens of one sequence among them (most often one run), and for each the cache, TILE positions at a time. Scores are inner products
// of tiles in workgroup memory, 32 elements of D at a time; weights take the tiles' place there. Values go from the cache to registers:
// an invocation has 8 rows of an octet of the results.
//
// Shapes   M tokens, S sequences, H query heads, G KV heads (H a multiple of G), D = HEAD_DIM, N blocks of 16 tokens
//   tokens        [M] vec4<u32>                    read   (id, position, slot, sequence)
//   block_tables  [S, max_blocks] u32              read   entries past a sequence's end are never read
//   qkv           [M, row_stride] f32              read   the queries are the first H*D elements of a row
//   k_cache       [N, G, 16, D] by KV_TYPE         read   slots past a sequence's end are never read
//   v_cache       [N, G, 16, D] the same           read
//   out           [M, H*D] f32                     write
// Grid     (ceil(M / (ROWS/HEADS)), G * ceil(H/G / HEADS), 1) workgroups of WG.
// Traffic  reads 4*D bytes (f16) of cache per position and KV head for ROWS/HEADS tokens, and the queries for each TILE positions, from
//          caches; writes 4*M*H*D. Bound by arithmetic.
// Storage  13,064 bytes of workgroup memory.
// Numerics online softmax in f32; within 2e-5 of ref over the values in the cache.
// Needs    lib_kv, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, PagedAttn.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const HEAD_DIM: u32 = 128u; // D, a multiple of 16, at most 128
const KV_TYPE: u32 = 1u;    // of the cache: 0 f32, 1 f16, 2 int8 with scales
const HEADS: u32 = 8u;      // query heads per workgroup: 1, 2, 4, 8

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

// No tuning: workgroup and tiles belong together.
const WG: u32 = 128u;
const ROWS: u32 = 64u; // query rows per workgroup
const TILE: u32 = 32u; // positions at a time
const LOWEST: f32 = -3.4028234e38; // -FLT_MAX; WGSL has no infinity
const OCTETS: u32 = HEAD_DIM / 8u;
const VECS: u32 = HEAD_DIM / 4u;
const LINE: u32 = 8u;  // vectors of a tile's line: 32 elements
const TOKENS: u32 = ROWS / HEADS;
const AT_K: u32 = 512u; // ROWS * LINE, where the keys' lines begin

struct Run {
  end: u32,     // index in the workgroup's tokens of the first one that does not belong to the run
  context: u32, // positions that the run's last token sees
}

var<workgroup> run: Run;
var<workgroup> tile: array<vec4<f32>, 768>; // lines of queries, which scores and weights replace, then of keys
var<workgroup> shrinks: array<f32, ROWS>;
var<workgroup> totals: array<f32, WG>;

// Four is four neighbouring elements of four positions: k0 has the first of each.
struct Four { k0: vec4<f32>, k1: vec4<f32>, k2: vec4<f32>, k3: vec4<f32> }

fn turn(a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) -> Four {
  return Four(vec4<f32>(a.x, b.x, c.x, d.x), vec4<f32>(a.y, b.y, c.y, d.y),
              vec4<f32>(a.z, b.z, c.z, d.z), vec4<f32>(a.w, b.w, c.w, d.w));
}

fn mac(sum: vec4<f32>, v: vec4<f32>, f: Four) -> vec4<f32> {
  let a = fma(vec4<f32>(v.y), f.k1, fma(vec4<f32>(v.x), f.k0, sum));
  return fma(vec4<f32>(v.w), f.k3, fma(vec4<f32>(v.z), f.k2, a));
}

// seen is how many positions the token of a query row sees, if it belongs to the run.
fn seen(m0: u32, row: u32, begin: u32, end: u32) -> u32 {
  let i = row / HEADS;
  if (i < begin || i >= end) {
    return 0u;
  }
  return tokens[m0 + i].y + 1u;
}

// masked is the scores of four neighbouring positions from t on, for a token that sees n.
fn masked(s: vec4<f32>, t: u32, n: u32) -> vec4<f32> {
  return select(vec4<f32>(LOWEST), s * p.scale, vec4<u32>(t, t + 1u, t + 2u, t + 3u) < vec4<u32>(n));
}

fn weights(s: vec4<f32>, largest: f32) -> vec4<f32> {
  return select(exp(s - vec4<f32>(largest)), vec4<f32>(0.0), s == vec4<f32>(LOWEST));
}

// place is where vector c of line r lies: lines that neighbours read together, 1 or 4 apart by what "by" is, in different banks.
fn place(r: u32, c: u32, by: u32) -> u32 {
  return r * LINE + (c ^ ((r / by) % LINE));
}

fn largest_of(v: vec4<f32>) -> f32 {
  return max(max(v.x, v.y), max(v.z, v.w));
}

@compute @workgroup_size(WG)
fn paged_attn_tiled(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) tid: u32) {
  let m0 = wg.x * TOKENS;
  if (m0 >= step.rows) { // the same for the whole workgroup
    return;
  }
  let count = min(TOKENS, step.rows - m0);
  let per = p.heads / p.kv_heads;
  let groups = (per + HEADS - 1u) / HEADS;
  let g = wg.y / groups;
  let first_head = wg.y % groups * HEADS;
  let heads = min(HEADS, per - first_head);
  let h0 = g * per + first_head;

  // Loading: vector load_c of the query lines load_r + 16*i, and octet tid%4 of the key line tid/4.
  let load_r = tid / LINE;
  let load_c = tid % LINE;
  let q_row = p.row_stride / 4u;
  let q0 = (m0 + min(load_r / HEADS, count - 1u)) * q_row + (h0 + min(load_r % HEADS, heads - 1u)) * VECS;
  let q1 = (m0 + min((load_r + 16u) / HEADS, count - 1u)) * q_row + (h0 + min((load_r + 16u) % HEADS, heads - 1u)) * VECS;
  let q2 = (m0 + min((load_r + 32u) / HEADS, count - 1u)) * q_row + (h0 + min((load_r + 32u) % HEADS, heads - 1u)) * VECS;
  let q3 = (m0 + min((load_r + 48u) / HEADS, count - 1u)) * q_row + (h0 + min((load_r + 48u) % HEADS, heads - 1u)) * VECS;
  let at_q = place(load_r, load_c, 1u);
  let at_k0 = AT_K + place(tid / 4u, tid % 4u * 2u, 4u);
  let at_k1 = AT_K + place(tid / 4u, tid % 4u * 2u + 1u, 4u);
  // Scores: rows ry + 16*i, positions 4*cx .. 4*cx+3.
  let ry = tid / 8u;
  let cx = tid % 8u;
  // Weights: half of row tid/2.
  let row = tid / 2u;
  let part = tid % 2u * 4u;
  // Results: octet column of rows 8*band .. 8*band+7.
  let column = tid % 16u;
  let band = tid / 16u;

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
  var b0 = vec4<f32>(0.0);
  var b1 = vec4<f32>(0.0);
  var b2 = vec4<f32>(0.0);
  var b3 = vec4<f32>(0.0);
  var b4 = vec4<f32>(0.0);
  var b5 = vec4<f32>(0.0);
  var b6 = vec4<f32>(0.0);
  var b7 = vec4<f32>(0.0);

  var begin = 0u; // of the run, index in the workgroup's tokens
  for (var round = 0u; round < TOKENS && begin < count; round += 1u) {
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
    let n0 = seen(m0, ry, begin, current.end);
    let n1 = seen(m0, ry + 16u, begin, current.end);
    let n2 = seen(m0, ry + 32u, begin, current.end);
    let n3 = seen(m0, ry + 48u, begin, current.end);
    for (var first = 0u; first < current.context; first += TILE) {
      let last = current.context - 1u - first; // never past the end: whatever lies there may be NaN
      let k_at = kv_octet(seq, first + min(tid / 4u, last), g, p.kv_heads, p.max_blocks);
      let k_factor = k_scale(k_at);
      var s0 = vec4<f32>(0.0);
      var s1 = vec4<f32>(0.0);
      var s2 = vec4<f32>(0.0);
      var s3 = vec4<f32>(0.0);
      for (var v = 0u; v < VECS; v += LINE) {
        if (v + load_c < VECS) {
          tile[at_q] = qkv[q0 + v + load_c];
          tile[at_q + 16u * LINE] = qkv[q1 + v + load_c];
          tile[at_q + 32u * LINE] = qkv[q2 + v + load_c];
          tile[at_q + 48u * LINE] = qkv[q3 + v + load_c];
        } else { // past the end of D
          tile[at_q] = vec4<f32>(0.0);
          tile[at_q + 16u * LINE] = vec4<f32>(0.0);
          tile[at_q + 32u * LINE] = vec4<f32>(0.0);
          tile[at_q + 48u * LINE] = vec4<f32>(0.0);
        }
        if (v / 2u + tid % 4u < OCTETS) {
          let k = k_octet(k_at + v / 2u + tid % 4u);
          tile[at_k0] = k.a * k_factor;
          tile[at_k1] = k.b * k_factor;
        } else {
          tile[at_k0] = vec4<f32>(0.0);
          tile[at_k1] = vec4<f32>(0.0);
        }
        workgroupBarrier(); // queries and keys are complete
        for (var c = 0u; c < LINE; c += 1u) {
          let pk = AT_K + place(4u * cx, c, 4u); // the same swizzle for four lines
          let pq = place(ry, c, 1u);
          let k = turn(tile[pk], tile[pk + LINE], tile[pk + 2u * LINE], tile[pk + 3u * LINE]);
          s0 = mac(s0, tile[pq], k);
          s1 = mac(s1, tile[pq + 16u * LINE], k);
          s2 = mac(s2, tile[pq + 32u * LINE], k);
          s3 = mac(s3, tile[pq + 48u * LINE], k);
        }
        workgroupBarrier(); // all have read before the next elements or the scores take the place
      }
      let t = first + 4u * cx;
      tile[ry * LINE + cx] = masked(s0, t, n0);
      tile[(ry + 16u) * LINE + cx] = masked(s1, t, n1);
      tile[(ry + 32u) * LINE + cx] = masked(s2, t, n2);
      tile[(ry + 48u) * LINE + cx] = masked(s3, t, n3);
      workgroupBarrier(); // the scores are complete
      let at_row = row * LINE;
      let mine = at_row + part;
      let other = at_row + (4u - part);
      let w0 = tile[mine];
      let w1 = tile[mine + 1u];
      let w2 = tile[mine + 2u];
      let w3 = tile[mine + 3u];
      let most = max(max(max(w0, w1), max(w2, w3)), max(max(tile[other], tile[other + 1u]), max(tile[other + 2u], tile[other + 3u])));
      let now = max(largest, largest_of(most));
      let shrink = exp(largest - now);
      largest = now;
      workgroupBarrier(); // all have read the scores before weights replace them
      let e0 = weights(w0, now);
      let e1 = weights(w1, now);
      let e2 = weights(w2, now);
      let e3 = weights(w3, now);
      tile[mine] = e0;
      tile[mine + 1u] = e1;
      tile[mine + 2u] = e2;
      tile[mine + 3u] = e3;
      let e = (e0 + e1) + (e2 + e3);
      total = total * shrink + ((e.x + e.y) + (e.z + e.w));
      if (part == 0u) {
        shrinks[row] = shrink;
      }
      workgroupBarrier(); // the weights are complete
      if (column < OCTETS) {
        let r = 8u * band;
        a0 *= shrinks[r];
        b0 *= shrinks[r];
        a1 *= shrinks[r + 1u];
        b1 *= shrinks[r + 1u];
        a2 *= shrinks[r + 2u];
        b2 *= shrinks[r + 2u];
        a3 *= shrinks[r + 3u];
        b3 *= shrinks[r + 3u];
        a4 *= shrinks[r + 4u];
        b4 *= shrinks[r + 4u];
        a5 *= shrinks[r + 5u];
        b5 *= shrinks[r + 5u];
        a6 *= shrinks[r + 6u];
        b6 *= shrinks[r + 6u];
        a7 *= shrinks[r + 7u];
        b7 *= shrinks[r + 7u];
        for (var i = 0u; i < TILE && i <= last; i += 4u) {
          // Four positions of one block; those past the end repeat the last one, and weigh nothing.
          let o = kv_octet(seq, first + i, g, p.kv_heads, p.max_blocks);
          let o1 = o + min(1u, last - i) * OCTETS;
          let o2 = o + min(2u, last - i) * OCTETS;
          let o3 = o + min(3u, last - i) * OCTETS;
          let v0 = v_octet(o + column);
          let v1 = v_octet(o1 + column);
          let v2 = v_octet(o2 + column);
          let v3 = v_octet(o3 + column);
          let f = vec4<f32>(v_scale(o), v_scale(o1), v_scale(o2), v_scale(o3));
          let lo = Four(f.x * v0.a, f.y * v1.a, f.z * v2.a, f.w * v3.a);
          let hi = Four(f.x * v0.b, f.y * v1.b, f.z * v2.b, f.w * v3.b);
          let at = r * LINE + i / 4u;
          a0 = mac(a0, tile[at], lo);
          b0 = mac(b0, tile[at], hi);
          a1 = mac(a1, tile[at + LINE], lo);
          b1 = mac(b1, tile[at + LINE], hi);
          a2 = mac(a2, tile[at + 2u * LINE], lo);
          b2 = mac(b2, tile[at + 2u * LINE], hi);
          a3 = mac(a3, tile[at + 3u * LINE], lo);
          b3 = mac(b3, tile[at + 3u * LINE], hi);
          a4 = mac(a4, tile[at + 4u * LINE], lo);
          b4 = mac(b4, tile[at + 4u * LINE], hi);
          a5 = mac(a5, tile[at + 5u * LINE], lo);
          b5 = mac(b5, tile[at + 5u * LINE], hi);
          a6 = mac(a6, tile[at + 6u * LINE], lo);
          b6 = mac(b6, tile[at + 6u * LINE], hi);
          a7 = mac(a7, tile[at + 7u * LINE], lo);
          b7 = mac(b7, tile[at + 7u * LINE], hi);
        }
      }
      workgroupBarrier(); // all have read the weights before queries replace them
    }
    begin = current.end;
  }

  totals[tid] = total;
  workgroupBarrier(); // the totals are complete
  if (column >= OCTETS) {
    return;
  }
  put(m0, h0, count, heads, 8u * band, column, a0, b0);
  put(m0, h0, count, heads, 8u * band + 1u, column, a1, b1);
  put(m0, h0, count, heads, 8u * band + 2u, column, a2, b2);
  put(m0, h0, count, heads, 8u * band + 3u, column, a3, b3);
  put(m0, h0, count, heads, 8u * band + 4u, column, a4, b4);
  put(m0, h0, count, heads, 8u * band + 5u, column, a5, b5);
  put(m0, h0, count, heads, 8u * band + 6u, column, a6, b6);
  put(m0, h0, count, heads, 8u * band + 7u, column, a7, b7);
}

// put writes an octet of the result of a query row.
fn put(m0: u32, h0: u32, count: u32, heads: u32, row: u32, column: u32, a: vec4<f32>, b: vec4<f32>) {
  let i = row / HEADS;
  let h = row % HEADS;
  if (i >= count || h >= heads) {
    return;
  }
  let all = totals[2u * row] + totals[2u * row + 1u];
  let at = ((m0 + i) * p.heads + h0 + h) * VECS + 2u * column;
  out[at] = a / all;
  out[at + 1u] = b / all;
}
