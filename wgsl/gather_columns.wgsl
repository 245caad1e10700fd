// gather_columns: puts the inputs of a linear layer in the order of its stored columns.
//
//   out[m,j] = x[m, order[j]]
//
// Shapes   M tokens, K inputs
//   order  [K] u32          read        a permutation of 0..K-1
//   x      [M, x_stride] f32  read
//   out    [M, K] f32       write
// Grid     ceil(M*K / WG) workgroups of WG, spread over x and y.
// Traffic  reads 4*M*K + 4*K bytes, writes 4*M*K.
// Storage  no workgroup memory.
// Numerics exact.
// Needs    nothing beyond the portable subset.
// Ref      internal/ref, GatherColumns.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 64u; // invocations per workgroup

struct Params {
  k: u32,        // K, elements of a row of out
  x_stride: u32, // elements of a row of x
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
@group(0) @binding(2) var<storage, read> order: array<u32>;
@group(0) @binding(3) var<storage, read> x: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(WG)
fn gather_columns(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
                  @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * nwg.x + wg.x) * WG + tid;
  let m = i / p.k;
  if (m >= step.rows) {
    return;
  }
  out[i] = x[m * p.x_stride + order[i - m * p.k]];
}
