// silu_mul: the gate of a SwiGLU feed-forward layer.
//
//   out[m,i] = silu(gate_up[m,i]) * gate_up[m, dim+i],   silu(g) = g / (1 + exp(-g))
//
// Shapes   M rows
//   gate_up  [M, 2*dim] f32  read   gate first
//   out      [M, dim]   f32  write
// Grid     ceil(M*dim / WG) workgroups of WG, spread over x and y.
// Traffic  reads 8*M*dim bytes, writes 4*M*dim.
// Storage  no workgroup memory.
// Numerics exp in f32, its argument at most 88 so that it never overflows; within 1e-5 of ref.
// Needs    nothing beyond the portable subset.
// Ref      internal/ref, SiLUMul.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 64u; // invocations per workgroup

struct Params {
  dim: u32, // elements of a row of out
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
@group(0) @binding(2) var<storage, read> gate_up: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(WG)
fn silu_mul(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
            @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * nwg.x + wg.x) * WG + tid;
  let m = i / p.dim;
  if (m >= step.rows) {
    return;
  }
  let at = i + m * p.dim; // row m of gate_up begins at 2*m*dim
  let g = gate_up[at];
  out[i] = g / (1.0 + exp(min(-g, 88.0))) * gate_up[at + p.dim];
}
