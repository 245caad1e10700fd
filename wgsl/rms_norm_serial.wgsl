// rms_norm_serial: rms_norm without barriers, for software adapters: one invocation a row.
//
//   y[m,i] = x[m,i] / sqrt(mean_i(x[m,i]^2) + eps) * weight[i]
//
// Shapes   M rows
//   x       [M, dim] f32  read
//   weight  [dim]    f32  read
//   y       [M, dim] f32  write
// Grid     ceil(M/WG) workgroups of WG, spread over x and y.
// Traffic  reads 4*M*dim bytes of x (twice, the second time from cache) and 4*dim of weight, writes 4*M*dim.
// Storage  no workgroup memory.
// Numerics four partial sums in f32; within 1e-5 of ref. dim is at most 52,428: Mesa 22 allows 65,535
//          rounds of all loops together.
// Needs    nothing beyond the portable subset.
// Ref      internal/ref, RMSNorm.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 8u; // invocations per workgroup

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

@compute @workgroup_size(WG)
fn rms_norm_serial(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
                   @builtin(local_invocation_index) tid: u32) {
  let m = (wg.y * nwg.x + wg.x) * WG + tid;
  if (m >= step.rows) {
    return;
  }
  let base = m * p.dim;
  let quads = p.dim / 4u;
  var sums = vec4<f32>(0.0);
  for (var i = 0u; i < quads; i += 1u) {
    let o = base + 4u * i;
    let v = vec4<f32>(x[o], x[o + 1u], x[o + 2u], x[o + 3u]);
    sums += v * v;
  }
  var sum = (sums.x + sums.y) + (sums.z + sums.w);
  for (var i = 4u * quads; i < p.dim; i += 1u) {
    sum += x[base + i] * x[base + i];
  }
  let r = inverseSqrt(sum / f32(p.dim) + p.eps);
  for (var i = 0u; i < p.dim; i += 1u) {
    y[base + i] = x[base + i] * r * weight[i];
  }
}
