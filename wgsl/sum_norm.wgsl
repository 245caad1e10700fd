// sum_norm: ends a linear layer whose K was split over workgroups and that adds to the residual stream, and norms what is there then.
//
//   x[m] += bias + sum over s of parts[s, m]
//   y[m, i] = x[m, i] / sqrt(mean_i(x[m, i]^2) + eps) * weight[i]
//
// Shapes   M tokens, S parts, dim elements of a row, a multiple of 4
//   parts   [S, M, dim] f32   read
//   bias    [dim] f32         read        a dummy without bias
//   weight  [dim] f32         read
//   x       [M, dim] f32      read_write
//   y       [M, dim] f32      write
// Grid     M workgroups of WG, spread over x and y: one a row.
// Traffic  reads 4*(S+1)*M*dim bytes, writes 8*M*dim. Bound by latency.
// Storage  4*WG + 64 bytes of workgroup memory.
// Numerics f32 sums in the order of the parts, after x; the sum of squares by WG partial sums, by sixteens and then all.
// Needs    lib_parts, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, SumNorm.

struct Params {
  dim: u32,   // elements of a row, a multiple of 4
  parts: u32, // S
  flags: u32, // bit 1: there is a bias
  eps: f32,   // added to the mean square
}

struct Step {
  rows: u32, // M, the tokens that this step really has
  pad0: u32,
  pad1: u32,
  pad2: u32,
}

alias Part = vec4<f32>;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read> parts: array<Part>;
@group(0) @binding(3) var<storage, read> bias: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> y: array<vec4<f32>>;

// No tuning: sixteen sums of sixteen.
const WG: u32 = 256u;

var<workgroup> squares: array<f32, WG>;
var<workgroup> sixteenths: array<f32, 16>;

// total is vector i of row m when all is added.
fn total(m: u32, i: u32, vecs: u32) -> vec4<f32> {
  var sum = x[m * vecs + i];
  if ((p.flags & 2u) != 0u) {
    sum += bias[i];
  }
  return add_parts(sum, m * vecs + i, step.rows * vecs);
}

@compute @workgroup_size(WG)
fn sum_norm(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
            @builtin(local_invocation_index) tid: u32) {
  let m = wg.y * nwg.x + wg.x;
  if (m >= step.rows) { // the same for the whole workgroup
    return;
  }
  let vecs = p.dim / 4u;
  var square = 0.0;
  var kept = vec4<f32>(0.0); // the first vector of this invocation, which for most models is the only one
  for (var i = tid; i < vecs; i += WG) {
    let v = total(m, i, vecs);
    x[m * vecs + i] = v;
    square += dot(v, v);
    if (i == tid) {
      kept = v;
    }
  }
  squares[tid] = square;
  workgroupBarrier(); // the squares of all invocations are complete
  if (tid < 16u) {
    var sum = 0.0;
    for (var i = 0u; i < 16u; i += 1u) {
      sum += squares[16u * tid + i];
    }
    sixteenths[tid] = sum;
  }
  workgroupBarrier(); // the sums of sixteen are complete
  var all = 0.0;
  for (var i = 0u; i < 16u; i += 1u) {
    all += sixteenths[i];
  }
  let r = inverseSqrt(all / f32(p.dim) + p.eps);
  for (var i = tid; i < vecs; i += WG) {
    if (i != tid) {
      kept = x[m * vecs + i]; // written by this invocation itself
    }
    y[m * vecs + i] = kept * r * weight[i];
  }
}
