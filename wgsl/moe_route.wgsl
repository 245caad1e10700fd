// moe_route: chooses the experts of each token, and how much each of them counts.
//
//   prob[m] = softmax(logits[m])
//   chosen[m] = the slots experts with the largest prob[m,e] + bias[e], the largest first, of equal ones the lower
//   shares[m,s] = prob[m, chosen[m,s]] / max(sum over t of prob[m, chosen[m,t]], norm_min)
//
// The bias corrects the choice alone. An expert's place is the number of those that come before it, so that no invocation waits
// for another's choice.
//
// Shapes   M tokens, E experts
//   logits  [M, E] f32      read
//   bias    [E] f32         read
//   chosen  [M, slots] u32  write
//   shares  [M, slots] f32  write
// Grid     M workgroups of WG, spread over x and y: one a token.
// Traffic  reads 4*M*E bytes, writes 8*M*slots. Too little to matter.
// Storage  4,160 bytes of workgroup memory.
// Numerics exp and sums in f32, in the order of e; within 2e-5 of ref. The choice is that of the rounded sums prob + bias.
// Needs    nothing beyond the portable subset.
// Ref      internal/ref, Route.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 64u; // invocations per workgroup

const MAX_EXPERTS: u32 = 512u;
const MAX_SLOTS: u32 = 16u;

struct Params {
  experts: u32,  // E, at most MAX_EXPERTS
  slots: u32,    // experts that a token is sent to, at most MAX_SLOTS and E
  norm_min: f32, // least sum to divide by
  pad0: u32,
}

struct Step {
  rows: u32, // M, the tokens that this step really has
  pad0: u32,
  pad1: u32,
  pad2: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read> logits: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> chosen: array<u32>;
@group(0) @binding(5) var<storage, read_write> shares: array<f32>;

var<workgroup> powers: array<f32, MAX_EXPERTS>; // exp(logit - largest)
var<workgroup> scores: array<f32, MAX_EXPERTS>; // prob + bias
var<workgroup> picked: array<f32, MAX_SLOTS>;   // prob of the chosen

@compute @workgroup_size(WG)
fn moe_route(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
             @builtin(local_invocation_index) tid: u32) {
  let m = wg.y * nwg.x + wg.x;
  if (m >= step.rows) { // the same for the whole workgroup
    return;
  }
  let row = m * p.experts;
  var largest = logits[row];
  for (var e = 1u; e < p.experts; e += 1u) {
    largest = max(largest, logits[row + e]);
  }
  for (var e = tid; e < p.experts; e += WG) {
    powers[e] = exp(logits[row + e] - largest);
  }
  if (tid < p.slots) {
    picked[tid] = 0.0;
  }
  workgroupBarrier(); // powers are complete before any invocation adds them up
  var sum = 0.0;
  for (var e = 0u; e < p.experts; e += 1u) {
    sum += powers[e];
  }
  for (var e = tid; e < p.experts; e += WG) {
    scores[e] = powers[e] / sum + bias[e];
  }
  workgroupBarrier(); // scores are complete, and all read them from memory: all see the same ones
  for (var e = tid; e < p.experts; e += WG) {
    let mine = scores[e];
    var place = 0u;
    for (var other = 0u; other < p.experts; other += 1u) {
      let score = scores[other];
      if (score > mine || (score == mine && other < e)) {
        place += 1u;
      }
    }
    if (place < p.slots) {
      chosen[m * p.slots + place] = e;
      picked[place] = powers[e] / sum;
    }
  }
  workgroupBarrier(); // picked is complete
  if (tid < p.slots) {
    var total = 0.0;
    for (var s = 0u; s < p.slots; s += 1u) {
      total += picked[s];
    }
    shares[m * p.slots + tid] = picked[tid] / max(total, p.norm_min);
  }
}
