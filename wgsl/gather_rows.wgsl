// gather_rows: picks rows, such as the last token of each sequence before the LM head.
//
//   out[m] = x[rows[m]]
//
// Shapes   M rows picked
//   rows  [M] u32               read
//   x     [any, x_stride] f32   read
//   out   [M, dim] f32          write
// Grid     ceil(M*dim / WG) workgroups of WG, spread over x and y.
// Traffic  reads 4*M*dim + 4*M bytes, writes 4*M*dim.
// Storage  no workgroup memory.
// Numerics exact.
// Needs    nothing beyond the portable subset.
// Ref      internal/ref, GatherRows.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 64u; // invocations per workgroup

struct Params {
  dim: u32,      // elements of a row of out
  x_stride: u32, // elements of a row of x
  pad0: u32,
  pad1: u32,
}

struct Step {
  rows: u32, // M, the rows that this step really picks
  pad0: u32,
  pad1: u32,
  pad2: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read> rows: array<u32>;
@group(0) @binding(3) var<storage, read> x: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(WG)
fn gather_rows(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
               @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * nwg.x + wg.x) * WG + tid;
  let m = i / p.dim;
  if (m >= step.rows) {
    return;
  }
  out[i] = x[rows[m] * p.x_stride + (i - m * p.dim)];
}
