// argmax_partial: the largest logit of each slice of a row; argmax_reduce picks the winner.
//
//   partial[m,i] = (bits of the largest logit, its lowest id) over ids i, i+parts, i+2*parts, .. below limit
//
// A NaN anywhere in the slice gives the id 0xFFFFFFFF. Values are compared as integers in the order of the floats, so that
// no compiler's assumption about infinities or NaN matters; -0 counts as 0.
//
// Shapes   M rows
//   logits   [M, vocab] f32          read
//   partial  [M, parts] vec2<u32>    write
// Grid     ceil(M*parts / WG) workgroups of WG, spread over x and y: one invocation a slice, neighbours read neighbours.
// Traffic  reads 4*M*limit bytes, writes 8*M*parts.
// Storage  no workgroup memory.
// Numerics exact. A slice has at most 65,535 ids: Mesa 22 cuts longer loops.
// Needs    nothing beyond the portable subset.
// Ref      internal/ref, Argmax.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 64u; // invocations per workgroup

struct Params {
  vocab: u32, // elements of a row of logits
  limit: u32, // ids that may win, at most vocab
  parts: u32, // slices of a row, at most limit
  pad0: u32,
}

struct Step {
  rows: u32, // M, the rows that this step really has
  pad0: u32,
  pad1: u32,
  pad2: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read> logits: array<u32>;
@group(0) @binding(3) var<storage, read_write> partial: array<vec2<u32>>;

const NONE: u32 = 0xFFFFFFFFu;
const SIGN: u32 = 0x80000000u;

// order maps the bits of a float to an integer that compares like the float.
fn order(bits: u32) -> u32 {
  return select(bits | SIGN, ~bits, bits >= SIGN);
}

fn is_nan(bits: u32) -> bool {
  return (bits & 0x7FFFFFFFu) > 0x7F800000u;
}

@compute @workgroup_size(WG)
fn argmax_partial(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
                  @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * nwg.x + wg.x) * WG + tid;
  let m = i / p.parts;
  if (m >= step.rows) {
    return;
  }
  let base = m * p.vocab;
  let first = i - m * p.parts;
  var best = vec2<u32>(0xFF800000u, first); // -infinity
  var nan = false;
  for (var id = first; id < p.limit; id += p.parts) {
    var bits = logits[base + id];
    nan = nan || is_nan(bits);
    bits = select(bits, 0u, bits == SIGN);
    if (order(bits) > order(best.x)) {
      best = vec2<u32>(bits, id);
    }
  }
  if (nan) {
    best.y = NONE;
  }
  partial[i] = best;
}
