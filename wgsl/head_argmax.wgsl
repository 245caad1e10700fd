// head_argmax: the rows that want logits, their RMS norm, the LM head, and the largest logit of each workgroup, in one kernel for few
// rows; argmax_reduce or argmax_advance picks the winner.
//
//   logits[m, offset+j]      = dot(x[rows[m]] * weight, w[j]) / sqrt(mean(x[rows[m]]^2) + eps)
//   partial[m, part0 + i]    = (bits of the largest logit, its lowest id) over the ids of workgroup i, below limit
//
// A NaN among them gives the id 0xFFFFFFFF, as in argmax_blocks. LANES invocations share 4*FOURS rows of w.
//
// Shapes   M rows, at most 4; N rows of w (one part of a matrix), K inputs, a multiple of 32
//   rows     [4] u32                read        the row of x that becomes row m of logits
//   x        [any, K] f32           read
//   weight   [K] f32                read        of the norm
//   w        [N, K] packed          read        as internal/quant/format.go says; the buffer is padded to 16 bytes
//   scales   [N, words] u32         read
//   logits   [M, vocab] f32         write
//   partial  [M, parts] vec2<u32>   write
// Grid     ceil(N / (4*FOURS*WG/LANES)) workgroups of WG over x and y, M in z.
// Traffic  reads w and scales M times, 8*K bytes for each workgroup (from cache), writes 4*M*N. Bound by the memory that w takes.
// Storage  144*LANES + 16*FOURS*WG + 4*WG + 128 bytes of workgroup memory, less in the variant.
// Numerics f32 sums, LANES partial ones a row; what is compared is what is written.
// Needs    a lib_weight file, lib_norm_linear, lib_place and lib_row_sums, appended by wgsl.Source; formats that are read 32 at a time;
//          nothing beyond the portable subset. A variant has lib_place_subgroups and lib_row_sums_subgroups.
// Ref      internal/ref, HeadArgmax.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 128u;    // invocations per workgroup, a multiple of LANES
const LANES: u32 = 32u;  // invocations that share rows: 32, 64 or 96
const FOURS: u32 = 2u;   // fours of rows that they share: 1 or 2
const K: u32 = 1024u;    // inputs, as in Params
const N: u32 = 103424u;  // rows of this part, as in Params
const NORM: u32 = 1u;    // always

struct Params {
  k: u32,      // K, elements, a multiple of 32
  n: u32,      // N, rows of this part
  vocab: u32,  // elements of a row of logits
  offset: u32, // id of row 0 of w
  limit: u32,  // ids that may win, at most vocab
  parts: u32,  // elements of a row of partial
  part0: u32,  // that of workgroup 0
  eps: f32,    // added to the mean square
}

struct Step {
  rows: u32, // M, the rows that this step really has
  pad0: u32,
  pad1: u32,
  pad2: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<uniform> rows: array<vec4<u32>, 1>;
@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read> scales: array<u32>;
@group(0) @binding(7) var<storage, read_write> logits: array<f32>;
@group(0) @binding(8) var<storage, read_write> partial: array<vec2<u32>>;

const NONE: u32 = 0xFFFFFFFFu;
const SIGN: u32 = 0x80000000u;
const FOUND: u32 = FOURS * WG / LANES; // invocations that have logits, at most 16

// A candidate is (value as an integer that compares like the float, id). NaN is the largest value there is.
var<workgroup> best: array<vec2<u32>, 16>;

fn input(m: u32, t: u32) -> vec4<f32> {
  return x[rows[0][m] * (K / 4u) + t];
}

fn norm_weight(t: u32) -> vec4<f32> {
  return weight[t];
}

fn rows_of(four: u32) -> vec4<u32> {
  // Invocations past the last row must still reach the barriers.
  return min(vec4<u32>(4u * four) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(N - 1u));
}

// candidate is what row j of w is; beyond the limit and past the last row it is one that loses to all.
fn candidate(v: f32, j: u32) -> vec2<u32> {
  let bits = bitcast<u32>(v);
  let b = select(bits, 0u, bits == SIGN);
  let o = select(b | SIGN, ~b, b >= SIGN);
  let nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  let id = p.offset + j;
  return select(vec2<u32>(0u, NONE - 1u), vec2<u32>(select(o, NONE, nan), id), j < N && id < p.limit);
}

// better is the winner of two candidates: the larger value, then the lower id.
fn better(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(a, b, b.x > a.x || (b.x == a.x && b.y < a.y));
}

fn put(m: u32, j: u32, v: f32) {
  if (j < N) {
    logits[m * p.vocab + p.offset + j] = v;
  }
}

fn best_at(i: u32) -> vec2<u32> {
  if (i >= FOUND) {
    return vec2<u32>(0u, NONE - 1u);
  }
  return best[i];
}

fn best_four(i: u32) -> vec2<u32> {
  return better(better(best_at(i), best_at(i + 1u)), better(best_at(i + 2u), best_at(i + 3u)));
}

// row computes what workgroup i has of row m.
fn row(m: u32, i: u32, first: u32, held: Held, tid: u32, lane: u32, me: Place) {
  let j = 4u * (first + lane);
  let z = sum_row(m, first, held, tid, lane, me);
  if (lane < FOURS) {
    put(m, j, z.x);
    put(m, j + 1u, z.y);
    put(m, j + 2u, z.z);
    put(m, j + 3u, z.w);
    best[tid / LANES * FOURS + lane] = better(better(candidate(z.x, j), candidate(z.y, j + 1u)),
                                              better(candidate(z.z, j + 2u), candidate(z.w, j + 3u)));
  }
  workgroupBarrier(); // all candidates are there
  if (tid == 0u) {
    var mine = best_four(0u);
    if (FOUND > 4u) {
      mine = better(mine, best_four(4u));
    }
    if (FOUND > 8u) {
      mine = better(mine, better(best_four(8u), best_four(12u)));
    }
    // What stands for a NaN has no other bits: the kernel that follows goes by the id.
    let bits = select(~mine.x, mine.x ^ SIGN, mine.x >= SIGN);
    partial[m * p.parts + p.part0 + i] = select(vec2<u32>(bits, mine.y), vec2<u32>(0x7FC00000u, NONE), mine.x == NONE);
  }
}

@compute @workgroup_size(WG)
fn head_argmax(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, me: Place) {
  let tid = index_of(me);
  let i = wg.y * nwg.x + wg.x;
  let lane = tid % LANES;
  let first = (i * (WG / LANES) + tid / LANES) * FOURS;
  let held = hold(first, 0u, lane);
  let m = wg.z;
  if (m < step.rows && i * (WG / LANES * FOURS * 4u) < N) { // the same for the whole workgroup
    row(m, i, first, held, tid, lane, me);
  }
}
