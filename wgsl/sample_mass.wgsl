// sample_mass: how much of the softmax lies before each of the first arrivals of a race, for the top_p of sample.
//
//   mass[m,i,j] = sum over the ids of part i of row m that come before top[m,j] of exp((logit - largest) / T), j < 12:
//                 those with a larger logit, and of equals those with a lower id
//   mass[m,i,12], [13] = the same sum over all ids that min_p certainly keeps, and over those that it may keep
//   mass[m,i,14] = how many logits differ from that of one of top[m,0..11] by so little that their weights may not
//
// Part i is the 2,048 ids from 2,048*i. Rows that do not race, and those without top_p, are left out.
//
// Shapes   M rows
//   top       [M, k] vec2<u32>        read   as topk_pick
//   sums      [M] vec2<u32>           read   as topk_pick
//   samplers  [M, 2] vec4<u32>        read   as sample
//   draws     [M] vec4<u32>           read   as topk_slices
//   logits    [M, vocab] f32          read
//   mass      [M, parts, 15] f32      write
// Grid     M*parts workgroups of WG, spread over x and y.
// Traffic  reads 4*M*limit bytes, writes 60*M*parts.
// Storage  15,456 bytes of workgroup memory.
// Numerics each sum within 1e-4 of its value.
// Needs    lib_topk and lib_sample, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, SampleMass.

// Tuning: the values make the file valid on its own.
const WG: u32 = 256u; // invocations per workgroup

struct Params {
  vocab: u32, // elements of a row of logits
  limit: u32, // ids that take part, at most vocab
  parts: u32, // of a row: limit/2048 rounded up
  k: u32,     // candidates of a row
}

struct Step {
  rows: u32, // M, the rows that this step really has
  pad0: u32,
  pad1: u32,
  pad2: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read> top: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> sums: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read> samplers: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read> draws: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read> logits: array<f32>;
@group(0) @binding(7) var<storage, read_write> mass: array<f32>;

const PART: u32 = 2048u;   // ids
const EACH: u32 = 8u;      // of an invocation
const SHARES: u32 = 3840u; // COLUMNS for each invocation
const LANES: u32 = 16u;    // that add up a column

var<workgroup> first: array<vec2<u32>, FIRST>; // (bits of the logit, id)
var<workgroup> shares: array<f32, SHARES>;

@compute @workgroup_size(WG)
fn sample_mass(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
               @builtin(local_invocation_index) tid: u32) {
  let i = wg.y * nwg.x + wg.x;
  let m = i / p.parts;
  if (m >= step.rows) { // the same for the whole workgroup
    return;
  }
  let how = bitcast<vec4<f32>>(samplers[2u * m]);
  let wanted = draws[m].y == 1u && how.z < 1.0;
  if (tid < FIRST) {
    first[tid] = vec2<u32>(0u, NO_ID);
    if (wanted && tid < p.k) {
      first[tid] = top[m * p.k + tid];
    }
  }
  workgroupBarrier(); // the first are there
  let largest = bitcast<f32>(sums[m].x);
  let start = (i - m * p.parts) * PART + tid;
  var low = 0.0;
  var high = 0.0;
  var near = 0.0;
  if (wanted) {
    for (var j = 0u; j < FIRST; j += 1u) {
      shares[j * WG + tid] = 0.0;
    }
    let close = NEAR / how.x;
    for (var e = 0u; e < EACH; e += 1u) {
      let id = start + e * WG;
      if (id < p.limit) {
        let l = max(logits[m * p.vocab + id], -3.0e38);
        let below = min((largest - l) * how.x, LEAST);
        let w = exp(-min(below, 80.0));
        low += select(0.0, w, below == 0.0 || below <= how.w * (1.0 - MIN));
        high += select(0.0, w, below == 0.0 || below < how.w * (1.0 + MIN));
        for (var j = 0u; j < FIRST; j += 1u) {
          let than = first[j];
          let d = l - bitcast<f32>(than.x);
          if (d > 0.0 || (d == 0.0 && id < than.y)) {
            shares[j * WG + tid] += w;
          }
          near += select(0.0, 1.0, d != 0.0 && abs(d) < close && than.y != NO_ID);
        }
      }
    }
    shares[FIRST * WG + tid] = low;
    shares[(FIRST + 1u) * WG + tid] = high;
    shares[(FIRST + 2u) * WG + tid] = near;
  }
  workgroupBarrier(); // the shares are complete
  var sum = 0.0;
  if (wanted && tid < COLUMNS * LANES) {
    for (var j = tid % LANES; j < WG; j += LANES) {
      sum += shares[tid / LANES * WG + j];
    }
  }
  workgroupBarrier(); // all have been read
  shares[tid] = sum;
  workgroupBarrier(); // those of the lanes are complete
  if (wanted && tid < COLUMNS) {
    sum = 0.0;
    for (var j = 0u; j < LANES; j += 1u) {
      sum += shares[tid * LANES + j];
    }
    mass[i * COLUMNS + tid] = sum;
  }
}
