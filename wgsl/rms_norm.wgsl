// rms_norm: root-mean-square normalisation of each row.
//
//   y[m,i] = x[m,i] / sqrt(mean_i(x[m,i]^2) + eps) * weight[i]
//
// Shapes   M rows
//   x       [M, dim] f32  read
//   weight  [dim]    f32  read
//   y       [M, dim] f32  write
// Grid     M workgroups of WG, spread over x and y: one a row.
// Traffic  reads 4*M*dim bytes of x (twice, the second time from cache) and 4*dim of weight, writes 4*M*dim.
// Storage  4*WG bytes of workgroup memory.
// Numerics sum of squares in f32 by WG partial sums and a tree; within 1e-5 of ref.
// Needs    nothing beyond the portable subset.
// Ref      internal/ref, RMSNorm.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 256u; // invocations per workgroup, a power of two

struct Params {
  dim: u32, // elements of a row
  eps: f32, // added to the mean square
  pad0: u32,
  pad1: u32,
}

struct Step {
  rows: u32, // M, the rows that this step really has
  pad0: u32,
  pad1: u32,
  pad2: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> weight: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

var<workgroup> sums: array<f32, WG>;

@compute @workgroup_size(WG)
fn rms_norm(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
            @builtin(local_invocation_index) tid: u32) {
  let m = wg.y * nwg.x + wg.x;
  if (m >= step.rows) { // the same for the whole workgroup
    return;
  }
  let base = m * p.dim;
  var sum = 0.0;
  for (var i = tid; i < p.dim; i += WG) {
    let v = x[base + i];
    sum += v * v;
  }
  sums[tid] = sum;
  for (var half = WG / 2u; half > 0u; half /= 2u) {
    workgroupBarrier(); // the sums of the round before are complete
    if (tid < half) {
      sums[tid] += sums[tid + half];
    }
  }
  workgroupBarrier(); // sums[0] is complete before any invocation reads it
  let r = inverseSqrt(sums[0] / f32(p.dim) + p.eps);
  for (var i = tid; i < p.dim; i += WG) {
    y[base + i] = x[base + i] * r * weight[i];
  }
}
