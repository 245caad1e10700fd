// paged_attn_reduce: combines the partitions of paged_attn_decode and paged_attn_serial.
//
//   out[m,h] = sum_i exp(largest_i - largest) * sums_i / sum_i exp(largest_i - largest) * total_i
//
// over the partitions i before the first one with total_i = 0: that has no tokens, and those after it have none. Here too the
// tokens are row0..row0+rows-1 of the step.
//
// Shapes   M tokens, of which R here at most, H query heads, D = HEAD_DIM
//   partial  [R, H, parts, D+4] f32   read   D sums, the largest score, the sum of exponentials, two unused
//   out      [M, H*D] f32             write
// Grid     ceil(R*H*D / WG) workgroups of WG, spread over x and y.
// Traffic  reads 4*R*H*parts*(D+4) bytes, writes 4*R*H*D.
// Storage  no workgroup memory.
// Numerics f32; within 1e-5 of ref.
// Needs    nothing beyond the portable subset.
// Ref      internal/ref, PagedAttnReduce.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 64u;        // invocations per workgroup
const HEAD_DIM: u32 = 128u; // D, a multiple of 16

struct Params {
  heads: u32, // H
  parts: u32, // partitions of a context
  row0: u32,  // first token of this dispatch
  rows: u32,  // most tokens of this dispatch
}

struct Step {
  rows: u32, // M, the tokens that this step really has
  pad0: u32,
  pad1: u32,
  pad2: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read> partial: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

const LOWEST: f32 = -3.4028234e38; // -FLT_MAX; WGSL has no infinity

@compute @workgroup_size(WG)
fn paged_attn_reduce(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
                     @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * nwg.x + wg.x) * WG + tid;
  let mh = i / HEAD_DIM;
  let m = p.row0 + mh / p.heads;
  if (mh >= p.rows * p.heads || m >= step.rows) {
    return;
  }
  let d = i - mh * HEAD_DIM;
  var largest = LOWEST;
  var total = 0.0;
  var sum = 0.0;
  for (var part = 0u; part < p.parts; part += 1u) {
    let at = (mh * p.parts + part) * (HEAD_DIM + 4u);
    let part_total = partial[at + HEAD_DIM + 1u];
    if (part_total == 0.0) {
      break;
    }
    let part_largest = partial[at + HEAD_DIM];
    let now = max(largest, part_largest);
    let shrink = exp(largest - now);
    let weight = exp(part_largest - now);
    total = total * shrink + part_total * weight;
    sum = sum * shrink + partial[at + d] * weight;
    largest = now;
  }
  out[p.row0 * p.heads * HEAD_DIM + i] = sum / total;
}
