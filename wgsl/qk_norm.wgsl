// qk_norm: root-mean-square normalisation of each head of q and of k, in place, before the rotary embedding (Qwen3).
//
//   qkv[m,h,i] = qkv[m,h,i] / sqrt(mean_i(qkv[m,h,i]^2) + eps) * weight[i]
//
// weight is q_weight for the query heads, which lie first in a row, and k_weight for the key heads after them.
//
// Shapes   M tokens, H query heads, G key heads, D = HEAD_DIM
//   q_weight  [D] f32              read
//   k_weight  [D] f32              read
//   qkv       [M, row_stride] f32  read_write
// Grid     ceil(M*(H+G) / (WG/LANES)) workgroups of WG, spread over x and y: LANES invocations a head.
// Traffic  reads and writes 4*M*(H+G)*D bytes.
// Storage  4*WG bytes of workgroup memory.
// Numerics sum of squares in f32 by LANES partial sums and a tree; within 1e-5 of ref.
// Needs    nothing beyond the portable subset. With LANES = 1 no barrier is reached: that is for software adapters.
// Ref      internal/ref, QKNorm.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 64u;        // invocations per workgroup, a multiple of LANES
const LANES: u32 = 32u;     // invocations that share a head, a power of two
const HEAD_DIM: u32 = 128u; // D, a multiple of 16

struct Params {
  heads: u32,      // H
  kv_heads: u32,   // G
  row_stride: u32, // elements of a row of qkv
  eps: f32,        // added to the mean square
}

struct Step {
  rows: u32, // M, the tokens that this step really has
  pad0: u32,
  pad1: u32,
  pad2: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read> q_weight: array<f32>;
@group(0) @binding(3) var<storage, read> k_weight: array<f32>;
@group(0) @binding(4) var<storage, read_write> qkv: array<f32>;

var<workgroup> sums: array<f32, WG>;

@compute @workgroup_size(WG)
fn qk_norm(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
           @builtin(local_invocation_index) tid: u32) {
  let lane = tid % LANES;
  let all = p.heads + p.kv_heads;
  let first = (wg.y * nwg.x + wg.x) * (WG / LANES);
  if (first >= step.rows * all) { // the same for the whole workgroup
    return;
  }
  let head = min(first + tid / LANES, step.rows * all - 1u); // lanes past the last head must still reach the barriers
  let mine = first + tid / LANES == head;
  let m = head / all;
  let h = head - m * all;
  let base = m * p.row_stride + h * HEAD_DIM;
  // Each element is read and written by one invocation.
  var sum = 0.0;
  for (var i = lane; i < HEAD_DIM; i += LANES) {
    let v = qkv[base + i];
    sum += v * v;
  }
  if (LANES > 1u) {
    sums[tid] = sum;
    for (var half = LANES / 2u; half > 0u; half /= 2u) {
      workgroupBarrier(); // the sums of the round before are complete
      if (lane < half) {
        sums[tid] += sums[tid + half];
      }
    }
    workgroupBarrier(); // the sum of the head is complete before its lanes read it
    sum = sums[tid - lane];
  }
  if (mine) {
    let r = inverseSqrt(sum / f32(HEAD_DIM) + p.eps);
    for (var i = lane; i < HEAD_DIM; i += LANES) {
      let weight = select(k_weight[i], q_weight[i], h < p.heads);
      qkv[base + i] = qkv[base + i] * r * weight;
    }
  }
}
