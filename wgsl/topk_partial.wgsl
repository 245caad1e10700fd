// topk_partial: the best candidate of each slice of a row, and its share of the softmax; topk_reduce_serial picks the best K.
//
//   partial[m,i] = (order of the best token, its id, order of the largest logit, bits of sum exp((logit - largest) / T))
//
// over ids i, i+parts, i+2*parts, .. below limit; lib_topk says what the order is. A NaN anywhere in the slice gives the order
// and the id 0xFFFFFFFF. Of a race the sum is not computed: it is 0.
//
// Shapes   M rows
//   draws    [M] vec4<u32>           read    (bits of 1/T, 0 or 1 for a race, key)
//   logits   [M, vocab] f32          read
//   partial  [M, parts] vec4<u32>    write
// Grid     ceil(M*parts / WG) workgroups of WG, spread over x and y: one invocation a slice, neighbours read neighbours.
// Traffic  reads 4*M*limit bytes, writes 16*M*parts.
// Storage  no workgroup memory.
// Numerics by logits exact; in a race the order is that of f32, within 1e-4 + 2^-22*|logit/T| of the exact value. The sum
//          within 1e-4 of its value. A slice has at most 65,535 ids: Mesa 22 cuts longer loops.
// Needs    lib_topk, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, TopKPartial.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 64u; // invocations per workgroup

struct Params {
  vocab: u32, // elements of a row of logits
  limit: u32, // ids that take part, at most vocab
  parts: u32, // slices of a row, at most limit
  k: u32,     // candidates of a row, for topk_reduce_serial
}

struct Step {
  rows: u32, // M, the rows that this step really has
  pad0: u32,
  pad1: u32,
  pad2: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read> draws: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> logits: array<u32>;
@group(0) @binding(4) var<storage, read_write> partial: array<vec4<u32>>;

const LOWEST: f32 = -3.4028234e38; // -FLT_MAX; WGSL has no infinity

@compute @workgroup_size(WG)
fn topk_partial(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
                @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * nwg.x + wg.x) * WG + tid;
  let m = i / p.parts;
  if (m >= step.rows) {
    return;
  }
  let draw = draws[m];
  let inverse = bitcast<f32>(draw.x);
  let base = m * p.vocab;
  var best = vec2<u32>(0u, NONE);
  var most = 0u; // order of the largest logit
  var largest = LOWEST;
  var sum = 0.0;
  for (var id = i - m * p.parts; id < p.limit; id += p.parts) {
    let bits = logits[base + id];
    let o = score(draw, bits, id);
    best = better(best, vec2<u32>(o, select(id, NONE, o == NONE)));
    most = max(most, order(bits));
    if (draw.y == 0u) {
      let l = bitcast<f32>(bits);
      if (l > largest) {
        sum = sum * decay((largest - l) * inverse) + 1.0;
        largest = l;
      } else {
        sum += decay((l - largest) * inverse);
      }
    }
  }
  partial[i] = vec4<u32>(best, most, bitcast<u32>(sum));
}
