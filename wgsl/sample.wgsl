// sample: chooses each row's token from what topk_pick left, and says what candidates the next step wants.
//
//   ids[m] = the token that comes first in a race of those that top_k, min_p and top_p leave of top[m]; at temperature 0 top[m,0];
//            0xFFFFFFFF where a logit is a NaN or +infinity, 0xFFFFFFFE where the candidates, in f32, do not prove which it is
//   where a token was chosen:  the step of samplers[m] counts up, and draws[m] is made for it
//
// A row that is not decided stays as it is: the host chooses from all logits. lib_sample says how it is proved that exact
// arithmetic would choose the same.
//
// Shapes   M rows
//   top       [M, k] vec2<u32>      read        (bits of the logit, id), best first by draws[m]
//   sums      [M] vec2<u32>         read        (bits of the largest logit, bits of sum exp((logit - largest) / T))
//   mass      [M, parts, 15] f32    read        as sample_mass, if it ran
//   samplers  [M, 2] vec4<u32>      read_write  ((bits of 1/T or 0, top_k or 0, bits of top_p, bits of -log(min_p)), (key, step))
//   draws     [M] vec4<u32>         read_write  as topk_partial
//   ids       [M] u32               write
// Grid     M workgroups of 64, spread over x and y: one a row.
// Traffic  reads M*(8*k+56+60*parts) bytes, writes 36*M.
// Storage  1,600 bytes of workgroup memory.
// Numerics the choice is exact or not made; lib_sample has the errors that are allowed for.
// Needs    lib_topk and lib_sample, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, Sample.

// Tuning: the values make the file valid on its own.
const WG: u32 = 64u; // invocations per workgroup: one for each candidate

struct Params {
  k: u32,     // candidates of a row, at most 64
  limit: u32, // ids that took part
  parts: u32, // of a row of mass; 0: sample_mass does not run
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
@group(0) @binding(2) var<storage, read> top: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> sums: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read> mass: array<f32>;
@group(0) @binding(5) var<storage, read_write> samplers: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read_write> draws: array<vec4<u32>>;
@group(0) @binding(7) var<storage, read_write> ids: array<u32>;

const LANES: u32 = 4u; // that add up a column of mass

var<workgroup> shares: array<f32, WG>;

@compute @workgroup_size(WG)
fn sample(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
          @builtin(local_invocation_index) tid: u32) {
  let m = wg.y * nwg.x + wg.x;
  if (m >= step.rows) { // the same for the whole workgroup
    return;
  }
  let how = bitcast<vec4<f32>>(samplers[2u * m]);
  let stream = samplers[2u * m + 1u];
  let sum = sums[m];
  if (tid < p.k) {
    enter(tid, top[m * p.k + tid], bitcast<f32>(sum.x), how, stream);
  }
  let race = draws[m].y == 1u;
  var sum_of = 0.0;
  if (race && how.z < 1.0 && tid < COLUMNS * LANES) {
    for (var i = tid / COLUMNS; i < p.parts; i += LANES) {
      sum_of += mass[(m * p.parts + i) * COLUMNS + tid % COLUMNS];
    }
  }
  shares[tid] = sum_of;
  workgroupBarrier(); // the shares are complete
  if (tid < COLUMNS) {
    mass_of[tid] = (shares[tid] + shares[tid + COLUMNS]) + (shares[tid + 2u * COLUMNS] + shares[tid + 3u * COLUMNS]) +
                   select(0.0, 1.0, p.parts == 0u);
  }
  workgroupBarrier(); // all candidates have entered
  if (tid == 0u) {
    let id = decide(p.k, sum.x, bitcast<f32>(sum.y), p.k >= p.limit, race, how);
    ids[m] = id;
    if (id < UNDECIDED) {
      let next = vec4<u32>(stream.xy, add64(stream.zw, vec2<u32>(1u, 0u)));
      samplers[2u * m + 1u] = next;
      draws[m] = wanted(how, next, p.parts > 0u);
    }
  }
}
