// topk_slices: the best candidate of each slice of a row, and its share of the softmax; topk_pick finds the best K from them.
//
//   partial[m,i] = (order of the best token, its id, order of the largest logit, bits of sum exp((logit - largest) / T))
//
// A slice is every parts-th group of 8 ids: what is read of a few slices later are whole sectors of memory. A NaN anywhere in the
// slice gives the order and the id 0xFFFFFFFF. Of a race the sum is not computed: it is 0.
//
// Shapes   M rows
//   draws    [M] vec4<u32>           read    (bits of 1/T, 0 or 1 for a race, key)
//   logits   [M, vocab] f32          read
//   partial  [M, parts] vec4<u32>    write
// Grid     ceil(M*parts / 8) workgroups of WG, spread over x and y: 32 invocations a slice, neighbours read neighbours.
// Traffic  reads 4*M*limit bytes, writes 16*M*parts.
// Storage  16*WG bytes of workgroup memory.
// Numerics by logits exact; in a race the order is that of f32, within 1e-4 + 2^-22*|logit/T| of the exact value. The sum
//          within 1e-4 of its value.
// Needs    lib_topk, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, TopKPartial.

// Tuning: the values make the file valid on its own.
const WG: u32 = 256u; // invocations per workgroup: 8 slices

struct Params {
  vocab: u32, // elements of a row of logits
  limit: u32, // ids that take part, at most vocab
  parts: u32, // slices of a row, at most 512, and at most limit/8 rounded up
  k: u32,     // candidates of a row, for topk_pick
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
const LANES: u32 = 32u;            // of a slice
const GROUP: u32 = 8u;             // ids

var<workgroup> shares: array<vec4<u32>, WG>;

// unorder is the float of an order; of one that stands for no logit, for -infinity or a NaN, a number as good.
fn unorder(o: u32) -> f32 {
  return bitcast<f32>(select(~max(o, 0x00800000u), min(o, 0xFF800000u) ^ SIGN, o >= SIGN));
}

// joined is a slice of two parts.
fn joined(a: vec4<u32>, b: vec4<u32>, inverse: f32) -> vec4<u32> {
  let most = max(a.z, b.z);
  let largest = unorder(most);
  let x = bitcast<f32>(a.w) * decay((unorder(a.z) - largest) * inverse);
  let y = bitcast<f32>(b.w) * decay((unorder(b.z) - largest) * inverse);
  return vec4<u32>(better(a.xy, b.xy), most, bitcast<u32>(x + y));
}

// taken is the best of c and a token.
fn taken(c: vec2<u32>, draw: vec4<u32>, bits: u32, id: u32) -> vec2<u32> {
  let o = score(draw, bits, id);
  return select(c, better(c, vec2<u32>(o, select(id, NONE, o == NONE))), id < p.limit);
}

@compute @workgroup_size(WG)
fn topk_slices(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
               @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * nwg.x + wg.x) * (WG / LANES) + tid / LANES;
  let lane = tid % LANES;
  let m = i / p.parts;
  var best = vec2<u32>(0u, NONE);
  var most = 0u; // order of the largest logit
  var sum = 0.0;
  var inverse = 0.0;
  if (m < step.rows) {
    let draw = draws[m];
    inverse = bitcast<f32>(draw.x);
    let base = m * p.vocab;
    let stride = p.parts * LANES; // four groups further
    let end = p.limit - 1u;
    var largest = LOWEST;
    for (var id = ((i - m * p.parts) + lane / GROUP * p.parts) * GROUP + lane % GROUP; id < p.limit; id += 4u * stride) {
      // Four at a time, which are waited for together.
      let t = vec4<u32>(id, id + stride, id + 2u * stride, id + 3u * stride);
      let bits = vec4<u32>(logits[base + t.x], logits[base + min(t.y, end)], logits[base + min(t.z, end)], logits[base + min(t.w, end)]);
      best = taken(best, draw, bits.x, t.x);
      best = taken(best, draw, bits.y, t.y);
      best = taken(best, draw, bits.z, t.z);
      best = taken(best, draw, bits.w, t.w);
      // What is read for ids beyond the limit is another slice's: the largest of all slices is as large all the same.
      most = max(most, max(max(order(bits.x), order(bits.y)), max(order(bits.z), order(bits.w))));
      if (draw.y == 0u) {
        let now = unorder(most);
        let x = max((bitcast<vec4<f32>>(bits) - now) * inverse, vec4<f32>(-80.0));
        let e = select(vec4<f32>(0.0), exp(x), t < vec4<u32>(p.limit));
        sum = sum * decay((largest - now) * inverse) + (e.x + e.y) + (e.z + e.w);
        largest = now;
      }
    }
  }
  var mine = vec4<u32>(best, most, bitcast<u32>(sum));
  shares[tid] = mine;
  workgroupBarrier(); // the shares are complete
  if (lane < 4u) {
    for (var j = lane + 4u; j < LANES; j += 4u) {
      mine = joined(mine, shares[tid - lane + j], inverse);
    }
  }
  workgroupBarrier(); // all have been read
  shares[tid] = mine;
  workgroupBarrier(); // those of four lanes are complete
  if (lane == 0u && m < step.rows) {
    for (var j = 1u; j < 4u; j += 1u) {
      mine = joined(mine, shares[tid + j], inverse);
    }
    partial[i] = mine;
  }
}
