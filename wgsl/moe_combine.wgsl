// moe_combine: adds up what the experts of each token found.
//
//   y[m,i] += sum over s of shares[m,s] * parts[m,s,i]
//
// Shapes   M tokens
//   shares  [M, slots] f32       read
//   parts   [M, slots, dim] f32  read
//   y       [M, dim] f32         read_write
// Grid     ceil(M*dim / WG) workgroups of WG, spread over x and y.
// Traffic  reads 4*M*(slots+1)*dim bytes, writes 4*M*dim.
// Storage  no workgroup memory.
// Numerics f32 sums in the order of s, the experts that count most for the choice first.
// Needs    nothing beyond the portable subset.
// Ref      internal/ref, CombineExperts.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 64u; // invocations per workgroup

struct Params {
  dim: u32,   // elements of a row of y
  slots: u32, // experts that a token is sent to
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
@group(0) @binding(2) var<storage, read> shares: array<f32>;
@group(0) @binding(3) var<storage, read> parts: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WG)
fn moe_combine(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
               @builtin(local_invocation_index) tid: u32) {
  let at = (wg.y * nwg.x + wg.x) * WG + tid;
  let m = at / p.dim;
  if (m >= step.rows) {
    return;
  }
  let i = at - m * p.dim;
  var sum = 0.0;
  for (var s = 0u; s < p.slots; s += 1u) {
    let pair = m * p.slots + s;
    sum += shares[pair] * parts[pair * p.dim + i];
  }
  y[at] += sum;
}
