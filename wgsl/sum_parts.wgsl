// sum_parts: ends a linear layer whose K was split over workgroups.
//
//   z[m, j] = bias[j] + sum over s of parts[s, m, j]
//   y[m, y_offset+j] (+)= z[m, j]                          without GATED
//   y[m, j] = silu(z[m, j]) * z[m, half+j]                 with GATED, for j < half = N/2
//
// Shapes   M tokens, N outputs, S parts
//   parts   [S, M, N] f32        read
//   bias    [y_stride] f32       read        a dummy without bias; with GATED [N]
//   y       [M, y_stride] f32    read_write
// Grid     ceil(M*N / WG) workgroups of WG over x and y; half as many with GATED.
// Traffic  reads 4*S*M*N bytes, writes 4*M*N.
// Storage  no workgroup memory.
// Numerics f32 sums in the order of the parts.
// Needs    lib_parts, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, SumParts.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 64u;   // invocations per workgroup
const GATED: u32 = 0u; // 1: silu of the upper half of outputs times the lower half

struct Params {
  n: u32,        // N
  parts: u32,    // S
  y_stride: u32, // elements of a row of y
  y_offset: u32, // column of y that belongs to the first output
  flags: u32,    // bit 0: add to y, bit 1: there is a bias
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

alias Part = f32;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read> parts: array<Part>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

fn total(m: u32, j: u32, column: u32) -> f32 {
  var sum = add_parts(0.0, m * p.n + j, step.rows * p.n);
  if ((p.flags & 2u) != 0u) {
    sum += bias[column];
  }
  return sum;
}

@compute @workgroup_size(WG)
fn sum_parts(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
             @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * nwg.x + wg.x) * WG + tid;
  let outputs = select(p.n, p.n / 2u, GATED == 1u);
  let m = i / outputs;
  if (m >= step.rows) {
    return;
  }
  let j = i - m * outputs;
  let column = p.y_offset + j;
  let at = m * p.y_stride + column;
  if (GATED == 1u) {
    let g = total(m, j, column);
    y[at] = g / (1.0 + exp(min(-g, 88.0))) * total(m, outputs + j, column + outputs);
    return;
  }
  var v = total(m, j, column);
  if ((p.flags & 1u) != 0u) {
    v += y[at];
  }
  y[at] = v;
}
