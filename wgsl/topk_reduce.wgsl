// topk_reduce: the K best candidates of each row, best first, from the best ones of its slices.
//
//   top[m,j]  = (bits of the logit, id) of the j-th best token; (0, 0xFFFFFFFF) where there are no more
//   sums[m]   = (bits of the largest logit, bits of sum over ids < limit of exp((logit - largest) / T))
//
// The best token is the best one of some slice. When it is taken, what is best of the rest of its slice is looked up in the
// logits, and so on: K times. A token that was taken is known by its id, because another compiler may have rounded its
// order in topk_partial. With a NaN in the row the largest logit is a NaN, and there are no tokens. Of a race, and
// where the largest logit is infinite, the sum is 0.
//
// Shapes   M rows
//   draws    [M] vec4<u32>          read    as topk_partial
//   logits   [M, vocab] f32         read
//   partial  [M, parts] vec4<u32>   read    as topk_partial writes it
//   top      [M, k] vec2<u32>       write
//   sums     [M] vec2<u32>          write
// Grid     M workgroups of WG, spread over x and y: one a row.
// Traffic  reads 16*M*parts + 4*M*k*limit/parts bytes, writes M*(8*k+8).
// Storage  8,192 + 20*WG + 520 bytes of workgroup memory.
// Numerics as topk_partial.
// Needs    lib_topk, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, TopKReduce.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 64u; // invocations per workgroup

struct Params {
  vocab: u32, // elements of a row of logits
  limit: u32, // ids that take part, at most vocab
  parts: u32, // slices of a row, at most 1024
  k: u32,     // candidates of a row, at most 128
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
@group(0) @binding(4) var<storage, read> partial: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read_write> top: array<vec2<u32>>;
@group(0) @binding(6) var<storage, read_write> sums: array<vec2<u32>>;

const MAX_PARTS: u32 = 1024u;
const MAX_K: u32 = 128u;

var<workgroup> slices: array<vec2<u32>, MAX_PARTS>; // best of each that is not taken; used by invocation slice mod WG only
var<workgroup> best: array<vec2<u32>, WG>;          // of the slices of an invocation
var<workgroup> next: array<vec2<u32>, WG>;          // of a share of the slice that the last token came from
var<workgroup> share: array<f32, WG>;               // of the sum
var<workgroup> taken: array<u32, MAX_K>;            // ids

@compute @workgroup_size(WG)
fn topk_reduce(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
               @builtin(local_invocation_index) tid: u32) {
  let m = wg.y * nwg.x + wg.x;
  if (m >= step.rows) { // the same for the whole workgroup
    return;
  }
  let draw = draws[m];
  let base = m * p.vocab;
  var mine = vec2<u32>(0u, NONE);
  var most = 0u; // order of the largest logit
  for (var i = tid; i < p.parts; i += WG) {
    let c = partial[m * p.parts + i];
    slices[i] = c.xy;
    mine = better(mine, c.xy);
    most = max(most, c.z);
  }
  next[tid] = vec2<u32>(most, 0u);
  workgroupBarrier(); // the largest logits are complete
  for (var i = 0u; i < WG; i += 1u) {
    most = max(most, next[i].x);
  }
  let bits = select(~most, most ^ SIGN, most >= SIGN); // undoes order
  let finite = (bits & 0x7FFFFFFFu) < 0x7F800000u;
  let largest = bitcast<f32>(bits);
  var sum = 0.0;
  for (var i = tid; i < p.parts; i += WG) {
    let c = partial[m * p.parts + i];
    let l = bitcast<f32>(select(~c.z, c.z ^ SIGN, c.z >= SIGN));
    sum += bitcast<f32>(c.w) * decay((l - largest) * bitcast<f32>(draw.x));
  }
  share[tid] = sum;
  workgroupBarrier(); // the shares are complete; next may be overwritten
  if (tid == 0u) {
    for (var i = 1u; i < WG; i += 1u) {
      sum += share[i];
    }
    sums[m] = vec2<u32>(select(bits, 0x7FC00000u, most == NONE), select(0u, bitcast<u32>(sum), finite && draw.y == 0u));
  }

  for (var j = 0u; j < p.k; j += 1u) {
    best[tid] = mine;
    workgroupBarrier(); // the candidates are complete, and so is taken up to j
    var c = best[0];
    for (var i = 1u; i < WG; i += 1u) {
      c = better(c, best[i]);
    }
    let id = c.y; // NONE: a NaN, or there are no more
    if (tid == 0u) {
      taken[j] = id;
      top[m * p.k + j] = vec2<u32>(select(0u, logits[base + select(id, 0u, id == NONE)], id != NONE), id);
    }
    // Where there is no token, slice 0 is looked through for nothing.
    let slice = select(id % p.parts, 0u, id == NONE);
    var found = vec2<u32>(0u, NONE);
    for (var t = slice + tid * p.parts; t < p.limit && id != NONE; t += WG * p.parts) {
      let candidate = better(found, vec2<u32>(score(draw, logits[base + t], t), t));
      if (candidate.y == t && t != id) {
        var again = false;
        for (var i = 0u; i < j; i += 1u) {
          again = again || taken[i] == t;
        }
        if (!again) {
          found = candidate;
        }
      }
    }
    next[tid] = found;
    workgroupBarrier(); // what follows in the slice is complete; best may be overwritten
    if (tid == slice % WG && id != NONE) {
      found = next[0];
      for (var i = 1u; i < WG; i += 1u) {
        found = better(found, next[i]);
      }
      slices[slice] = found;
      mine = vec2<u32>(0u, NONE);
      for (var i = tid; i < p.parts; i += WG) {
        mine = better(mine, slices[i]);
      }
    }
  }
}
