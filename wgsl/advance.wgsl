// advance: turns the chosen tokens of a step of one token a row into the next such step, without the host.
//
//   (count, left, stops, flags) = states[m]
//   left == 0:                   ring[count % 64, m] = 0xFFFFFFFD, count++
//   ids[m] > 0xFFFFFFFD, a code: ring[count % 64, m] = the code, count++, left = 0; tokens[m] stays, so that a next step computes
//                                the same token again and its logits are there when the host looks
//   otherwise:                   ring[count % 64, m] = the id, count++, left--
//     the id is one of the first `stops` of stops[m], or left is 0:  left = 0, tokens[m].slot = 0xFFFFFFFF
//     otherwise:  tokens[m] = (id, position + 1, its slot by block_tables, sequence)
//     with COUNTS, and bit 1 of flags:  counts[flags / 256, id] has bit 31 set, and one is added
//
// Shapes   M rows, S = ring_rows of them at most, R records
//   ids           [M] u32             read        a token or a code
//   stops         [M, 2] vec4<u32>    read        ids that end a row
//   block_tables  [S, max_blocks] u32 read        block of each 16 positions of a sequence
//   states        [M] vec4<u32>       read_write  (steps so far, tokens that may still come, stops that count, flags)
//   tokens        [M] vec4<u32>       read_write  (id, position, slot, sequence)
//   ring          [64, S] u32         read_write  what each of the last 64 steps chose
//   counts        [R, vocab] u32      read_write  bit 31: in prompt or output; bits 0 to 29: times in the output. Of COUNTS only
// Grid     ceil(M / WG) workgroups of WG, spread over x and y: one invocation a row.
// Traffic  reads 68*M bytes, writes 36*M.
// Storage  no workgroup memory.
// Numerics exact.
// Needs    lib_advance, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, Advance.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 64u;    // invocations per workgroup
const COUNTS: u32 = 0u; // 1: rows whose flags have bit 1 count the token

struct Params {
  max_blocks: u32, // blocks of a row of block_tables
  ring_rows: u32,  // S
  vocab: u32,      // elements of a row of counts
  pad0: u32,
}

struct Step {
  rows: u32, // M, the rows that this step really has
  pad0: u32,
  pad1: u32,
  pad2: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read> ids: array<u32>;
@group(0) @binding(3) var<storage, read> stops: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> block_tables: array<u32>;
@group(0) @binding(5) var<storage, read_write> states: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read_write> tokens: array<vec4<u32>>;
@group(0) @binding(7) var<storage, read_write> ring: array<u32>;
@group(0) @binding(8) var<storage, read_write> counts: array<u32>;

@compute @workgroup_size(WG)
fn advance(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
           @builtin(local_invocation_index) tid: u32) {
  let m = (wg.y * nwg.x + wg.x) * WG + tid;
  if (m >= step.rows) {
    return;
  }
  advance_row(m, ids[m]);
}
