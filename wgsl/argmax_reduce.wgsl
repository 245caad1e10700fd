// argmax_reduce: the winner among the slices of argmax_partial.
//
//   ids[m] = the id of the largest value of partial[m], the lowest on a tie, 0xFFFFFFFF if any slice saw a NaN
//
// Shapes   M rows
//   partial  [M, parts] vec2<u32>   read   (bits of the value, id)
//   ids      [M] u32                write
// Grid     M workgroups of WG, spread over x and y: one a row.
// Traffic  reads 8*M*parts bytes, writes 4*M.
// Storage  8*WG bytes of workgroup memory.
// Numerics exact.
// Needs    nothing beyond the portable subset.
// Ref      internal/ref, Argmax.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 64u; // invocations per workgroup, a power of two

struct Params {
  parts: u32, // slices of a row
  pad0: u32,
  pad1: u32,
  pad2: u32,
}

struct Step {
  rows: u32, // M, the rows that this step really has
  pad0: u32,
  pad1: u32,
  pad2: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read> partial: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read_write> ids: array<u32>;

const NONE: u32 = 0xFFFFFFFFu;
const SIGN: u32 = 0x80000000u;

// A candidate is (value as an integer that compares like the float, id). NaN is the largest value there is.
var<workgroup> best: array<vec2<u32>, WG>;

fn order(bits: u32) -> u32 {
  return select(bits | SIGN, ~bits, bits >= SIGN);
}

// better is the winner of two candidates: the larger value, then the lower id.
fn better(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(a, b, b.x > a.x || (b.x == a.x && b.y < a.y));
}

// part is candidate i of row m, or past the last one this again.
fn part(m: u32, i: u32) -> vec2<u32> {
  let c = partial[m * p.parts + min(i, p.parts - 1u)];
  return vec2<u32>(select(order(c.x), NONE, c.y == NONE), c.y);
}

fn best_four(m: u32, i: u32) -> vec2<u32> {
  return better(better(part(m, i), part(m, i + WG)), better(part(m, i + 2u * WG), part(m, i + 3u * WG)));
}

@compute @workgroup_size(WG)
fn argmax_reduce(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
                 @builtin(local_invocation_index) tid: u32) {
  let m = wg.y * nwg.x + wg.x;
  if (m >= step.rows) { // the same for the whole workgroup
    return;
  }
  var mine = vec2<u32>(0u, NONE);
  for (var i = tid; i < p.parts; i += 8u * WG) { // eight that it waits for together
    mine = better(mine, better(best_four(m, i), best_four(m, i + 4u * WG)));
  }
  best[tid] = mine;
  for (var half = WG / 2u; half > 0u; half /= 2u) {
    workgroupBarrier(); // the candidates of the round before are complete
    if (tid < half) {
      best[tid] = better(best[tid], best[tid + half]);
    }
  }
  if (tid == 0u) {
    ids[m] = best[0].y; // written by this invocation itself
  }
}
