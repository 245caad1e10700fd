// argmax_blocks: the largest logit of each block of 2,048 ids of a row; argmax_reduce picks the winner.
//
//   partial[m,i] = (bits of the largest logit, its lowest id) over ids from 2048*i, below limit
//
// A NaN anywhere in the block gives the id 0xFFFFFFFF. Values are compared as integers in the order of the floats, so that no
// compiler's assumption about infinities or NaN matters; -0 counts as 0.
//
// Shapes   M rows
//   logits   [M, vocab] f32          read
//   partial  [M, parts] vec2<u32>    write
// Grid     M*parts workgroups of WG, spread over x and y: neighbours read neighbours, each eight ids that it waits for together.
// Traffic  reads 4*M*limit bytes, writes 8*M*parts.
// Storage  8*WG bytes of workgroup memory.
// Numerics exact.
// Needs    nothing beyond the portable subset.
// Ref      internal/ref, Argmax.

// Tuning: the values make the file valid on its own.
const WG: u32 = 256u; // invocations per workgroup

struct Params {
  vocab: u32, // elements of a row of logits
  limit: u32, // ids that may win, at most vocab
  parts: u32, // blocks of a row: limit/2048 rounded up
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
const LANES: u32 = 16u; // that hold the best of WG / LANES invocations

// A candidate is (value as an integer that compares like the float, id). NaN is the largest value there is.
var<workgroup> best: array<vec2<u32>, WG>;

// candidate is what an id is; beyond the limit it is one that loses to all.
fn candidate(bits: u32, id: u32) -> vec2<u32> {
  let b = select(bits, 0u, bits == SIGN);
  let o = select(b | SIGN, ~b, b >= SIGN);
  let nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  return select(vec2<u32>(0u, NONE - 1u), vec2<u32>(select(o, NONE, nan), id), id < p.limit);
}

// better is the winner of two candidates: the larger value, then the lower id.
fn better(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(a, b, b.x > a.x || (b.x == a.x && b.y < a.y));
}

@compute @workgroup_size(WG)
fn argmax_blocks(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
                 @builtin(local_invocation_index) tid: u32) {
  let i = wg.y * nwg.x + wg.x;
  let m = i / p.parts;
  if (m >= step.rows) { // the same for the whole workgroup
    return;
  }
  let id = (i - m * p.parts) * (8u * WG) + tid;
  let t = vec4<u32>(id, id + WG, id + 2u * WG, id + 3u * WG);
  let u = t + vec4<u32>(4u * WG);
  let a = vec4<u32>(m * p.vocab) + min(t, vec4<u32>(p.limit - 1u));
  let b = vec4<u32>(m * p.vocab) + min(u, vec4<u32>(p.limit - 1u));
  let x = vec4<u32>(logits[a.x], logits[a.y], logits[a.z], logits[a.w]);
  let y = vec4<u32>(logits[b.x], logits[b.y], logits[b.z], logits[b.w]);
  let first = better(better(candidate(x.x, t.x), candidate(x.y, t.y)), better(candidate(x.z, t.z), candidate(x.w, t.w)));
  let last = better(better(candidate(y.x, u.x), candidate(y.y, u.y)), better(candidate(y.z, u.z), candidate(y.w, u.w)));
  var mine = better(first, last);
  best[tid] = mine;
  workgroupBarrier(); // all candidates are there
  if (tid < LANES) {
    for (var j = tid + LANES; j < WG; j += LANES) {
      mine = better(mine, best[j]);
    }
  }
  workgroupBarrier(); // all have been read
  best[tid] = mine;
  workgroupBarrier(); // those of the lanes are complete
  if (tid == 0u) {
    for (var j = 1u; j < LANES; j += 1u) {
      mine = better(mine, best[j]);
    }
    // What stands for a NaN has no other bits: argmax_reduce goes by the id.
    let bits = select(~mine.x, mine.x ^ SIGN, mine.x >= SIGN);
    partial[i] = select(vec2<u32>(bits, mine.y), vec2<u32>(0x7FC00000u, NONE), mine.x == NONE);
  }
}
