// topk_reduce_serial: the K best candidates of each row from the slices of topk_partial: one invocation a row, without barriers.
//
//   top[m,j]  = (bits of the logit, id) of the j-th best token; (0, 0xFFFFFFFF) where there are no more
//   sums[m]   = (bits of the largest logit, bits of sum over ids < limit of exp((logit - largest) / T))
//
// The best token is the best one of some slice. When it is taken, what is best of the rest of its slice is looked up in the
// logits, and so on: K times. With a NaN in the row the largest logit is a NaN, and there are no tokens. Of a race, and where
// the largest logit is infinite, the sum is 0. Slices lie in groups, slice i in group i mod 32, so that not all are looked at for each token. Of each
// slice, partial keeps the best token that is not taken, and a bit for each of its tokens that says whether it is.
//
// Shapes   M rows
//   draws    [M] vec4<u32>          read        as topk_partial
//   logits   [M, vocab] f32         read
//   partial  [M, parts] vec4<u32>   read_write  as topk_partial writes it; used up
//   top      [M, k] vec2<u32>       write
//   sums     [M] vec2<u32>          write
// Grid     ceil(M/WG) workgroups of WG, spread over x and y.
// Traffic  reads 16*M*parts + 4*M*k*limit/parts bytes, writes M*(8*k+8).
// Storage  no workgroup memory; 256 bytes for each invocation.
// Numerics as topk_partial. A slice has at most 64 ids. 2*parts + k*(parts/32 + 96) is at most 65,535: Mesa 22 cuts loops when
//          all of an invocation together have run as many rounds.
// Needs    lib_topk, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, TopKReduce.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 8u; // invocations per workgroup

struct Params {
  vocab: u32, // elements of a row of logits
  limit: u32, // ids that take part, at most vocab
  parts: u32, // slices of a row
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
@group(0) @binding(4) var<storage, read_write> partial: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read_write> top: array<vec2<u32>>;
@group(0) @binding(6) var<storage, read_write> sums: array<vec2<u32>>;

const GROUPS: u32 = 32u;

@compute @workgroup_size(WG)
fn topk_reduce_serial(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
                      @builtin(local_invocation_index) tid: u32) {
  let m = (wg.y * nwg.x + wg.x) * WG + tid;
  if (m >= step.rows) {
    return;
  }
  let draw = draws[m];
  let base = m * p.vocab;
  let row = m * p.parts;
  var groups: array<vec2<u32>, GROUPS>;
  for (var g = 0u; g < GROUPS; g += 1u) {
    groups[g] = vec2<u32>(0u, NONE);
  }
  var most = 0u; // order of the largest logit
  for (var i = 0u; i < p.parts; i += 1u) {
    let c = partial[row + i];
    groups[i % GROUPS] = better(groups[i % GROUPS], c.xy);
    most = max(most, c.z);
  }
  let bits = select(~most, most ^ SIGN, most >= SIGN); // undoes order
  let finite = (bits & 0x7FFFFFFFu) < 0x7F800000u;
  let largest = bitcast<f32>(bits);
  var sum = 0.0;
  for (var i = 0u; i < p.parts; i += 1u) {
    let c = partial[row + i];
    partial[row + i] = vec4<u32>(c.xy, 0u, 0u); // nothing is taken
    let l = bitcast<f32>(select(~c.z, c.z ^ SIGN, c.z >= SIGN));
    sum += bitcast<f32>(c.w) * decay((l - largest) * bitcast<f32>(draw.x));
  }
  sums[m] = vec2<u32>(select(bits, 0x7FC00000u, most == NONE), select(0u, bitcast<u32>(sum), finite && draw.y == 0u));

  for (var j = 0u; j < p.k; j += 1u) {
    var c = groups[0];
    for (var g = 1u; g < GROUPS; g += 1u) {
      c = better(c, groups[g]);
    }
    let id = c.y; // NONE: a NaN, or there are no more
    if (id == NONE) {
      top[m * p.k + j] = vec2<u32>(0u, NONE);
      continue;
    }
    top[m * p.k + j] = vec2<u32>(logits[base + id], id);
    let slice = id % p.parts;
    let place = id / p.parts; // in the slice
    let taken = partial[row + slice].zw | vec2<u32>(select(0u, 1u << (place % 32u), place < 32u),
                                                    select(0u, 1u << (place % 32u), place >= 32u));
    var found = vec2<u32>(0u, NONE);
    for (var i = 0u; i < 64u && slice + i * p.parts < p.limit; i += 1u) {
      let t = slice + i * p.parts;
      let candidate = better(found, vec2<u32>(score(draw, logits[base + t], t), t));
      if (((select(taken.x, taken.y, i >= 32u) >> (i % 32u)) & 1u) == 0u) {
        found = candidate;
      }
    }
    partial[row + slice] = vec4<u32>(found, taken);
    let group = slice % GROUPS;
    var rest = vec2<u32>(0u, NONE);
    for (var i = group; i < p.parts; i += GROUPS) {
      rest = better(rest, partial[row + i].xy);
    }
    groups[group] = rest;
  }
}
