// argmax_advance: argmax_reduce and advance in one: the winner of each row, and what it makes of the row.
//
//   ids[m] = the id of the largest value of partial[m], the lowest on a tie, 0xFFFFFFFF if any slice saw a NaN
//   then as advance
//
// Shapes   M rows, S = ring_rows of them at most, R records
//   partial       [M, parts] vec2<u32>  read        (bits of the value, id)
//   stops         [M, 2] vec4<u32>      read        as advance
//   block_tables  [S, max_blocks] u32   read        as advance
//   ids           [M] u32               write
//   states        [M] vec4<u32>         read_write  as advance
//   tokens        [M] vec4<u32>         read_write  as advance
//   ring          [64, S] u32           read_write  as advance
//   counts        [R, vocab] u32        read_write  as advance
// Grid     M workgroups of WG, spread over x and y: one a row.
// Traffic  reads M*(8*parts+64) bytes, writes 40*M.
// Storage  8*WG bytes of workgroup memory.
// Numerics exact.
// Needs    lib_advance, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, Advance.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 128u;   // invocations per workgroup, a power of two
const COUNTS: u32 = 0u; // 1: rows whose flags have bit 1 count the token

struct Params {
  max_blocks: u32, // blocks of a row of block_tables
  ring_rows: u32,  // S
  vocab: u32,      // elements of a row of counts
  parts: u32,      // slices of a row
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
@group(0) @binding(3) var<storage, read> stops: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> block_tables: array<u32>;
@group(0) @binding(5) var<storage, read_write> ids: array<u32>;
@group(0) @binding(6) var<storage, read_write> states: array<vec4<u32>>;
@group(0) @binding(7) var<storage, read_write> tokens: array<vec4<u32>>;
@group(0) @binding(8) var<storage, read_write> ring: array<u32>;
@group(0) @binding(9) var<storage, read_write> counts: array<u32>;

const NONE: u32 = 0xFFFFFFFFu;
const SIGN: u32 = 0x80000000u;

// A candidate is (value as an integer that compares like the float, id). NaN is the largest value there is.
var<workgroup> best: array<vec2<u32>, WG>;

// order takes -0 for 0.
fn order(b: u32) -> u32 {
  let bits = select(b, 0u, b == SIGN);
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
fn argmax_advance(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
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
    let id = best[0].y; // written by this invocation itself
    ids[m] = id;
    advance_row(m, id);
  }
}
