// rope: rotary position embedding, in place, of pairs of neighbours or of pairs half a head apart.
//
//   (a, b) = (qkv[m,h,i0], qkv[m,h,i1]),  (c, s) = table[position(m), i]
//   qkv[m,h,i0] = a*c - b*s,  qkv[m,h,i1] = b*c + a*s
//   i0 = 2i, i1 = 2i+1;  with HALF_SPLIT  i0 = i, i1 = i + D/2
//
// Shapes   M tokens, D = HEAD_DIM; the heads that are rotated lie first in a row
//   tokens  [M] vec4<u32>                read        (id, position, slot, sequence)
//   table   [positions, D/2] vec2<f32>   read        (cos, sin), computed by the caller in float64
//   qkv     [M, row_stride] f32          read_write
// Grid     ceil(M*heads*D/2 / WG) workgroups of WG, spread over x and y.
// Traffic  reads and writes 4*M*heads*D bytes, reads 4*M*D of the table.
// Storage  no workgroup memory.
// Numerics two products and a sum in f32; within 1e-6 of ref, relative to the pair's length.
// Needs    nothing beyond the portable subset.
// Ref      internal/ref, Rope.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 64u;        // invocations per workgroup
const HEAD_DIM: u32 = 128u; // D, a multiple of 16
const HALF_SPLIT: u32 = 0u; // 1: pairs are half a head apart

struct Params {
  heads: u32,      // query and key heads that are rotated
  row_stride: u32, // elements of a row of qkv
  pad0: u32,
  pad1: u32,
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
@group(0) @binding(3) var<storage, read> table: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read_write> qkv: array<f32>;

const PAIRS: u32 = HEAD_DIM / 2u;

@compute @workgroup_size(WG)
fn rope(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) tid: u32) {
  let pair = (wg.y * nwg.x + wg.x) * WG + tid;
  let per_row = p.heads * PAIRS;
  let m = pair / per_row;
  if (m >= step.rows) {
    return;
  }
  let j = pair - m * per_row;
  let i = j % PAIRS;
  let cs = table[tokens[m].y * PAIRS + i];
  let head = m * p.row_stride + (j - i) * 2u;
  let at = head + select(2u * i, i, HALF_SPLIT == 1u);
  let other = at + select(1u, PAIRS, HALF_SPLIT == 1u);
  let a = qkv[at];
  let b = qkv[other];
  qkv[at] = a * cs.x - b * cs.y;
  qkv[other] = b * cs.x + a * cs.y;
}
