// moe_group: sorts the pairs of a token and an expert that it is sent to by expert, and cuts those of each expert into tiles.
//
//   pair i = m*slots + s is token m with the expert chosen[i]
//   groups[t] = the expert of tile t, NONE after the last tile
//   groups[tiles + t*TILE + i] = a pair of that expert, or NONE; each pair stands in one place
//
// A counting sort by one workgroup. In what order the pairs of an expert stand depends on the race of its invocations; what is
// computed for a pair does not depend on its place.
//
// Shapes   M tokens
//   chosen  [M, slots] u32       read
//   groups  [tiles*(1+TILE)] u32  write
// Grid     one workgroup of WG.
// Traffic  reads 8*M*slots bytes, writes 4*tiles*(1+TILE).
// Storage  6,144 bytes of workgroup memory.
// Numerics integers.
// Needs    nothing beyond the portable subset.
// Ref      internal/ref, GroupExperts.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 256u;  // invocations per workgroup
const TILE: u32 = 32u; // pairs of a tile

const MAX_EXPERTS: u32 = 512u;
const NONE: u32 = 0xFFFFFFFFu;

struct Params {
  experts: u32, // at most MAX_EXPERTS
  slots: u32,   // experts that a token is sent to
  tiles: u32,   // tiles that groups has room for; always enough
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
@group(0) @binding(2) var<storage, read> chosen: array<u32>;
@group(0) @binding(3) var<storage, read_write> groups: array<u32>;

var<workgroup> counts: array<atomic<u32>, MAX_EXPERTS>; // pairs of each expert
var<workgroup> placed: array<atomic<u32>, MAX_EXPERTS>; // of these, how many have their place
var<workgroup> starts: array<u32, MAX_EXPERTS>;         // first tile of each expert

@compute @workgroup_size(WG)
fn moe_group(@builtin(local_invocation_index) tid: u32) {
  let pairs = step.rows * p.slots;
  for (var e = tid; e < p.experts; e += WG) {
    atomicStore(&counts[e], 0u);
    atomicStore(&placed[e], 0u);
  }
  for (var t = tid; t < p.tiles; t += WG) {
    groups[t] = NONE;
  }
  storageBarrier();
  workgroupBarrier(); // the counters are zero, and the tiles empty, before any invocation adds to them
  for (var i = tid; i < pairs; i += WG) {
    atomicAdd(&counts[min(chosen[i], p.experts - 1u)], 1u);
  }
  workgroupBarrier(); // the counts are complete
  if (tid == 0u) {
    var tile = 0u;
    for (var e = 0u; e < p.experts; e += 1u) {
      starts[e] = tile;
      tile += (atomicLoad(&counts[e]) + TILE - 1u) / TILE;
    }
  }
  workgroupBarrier(); // starts are complete
  for (var e = tid; e < p.experts; e += WG) {
    let count = atomicLoad(&counts[e]);
    let tiles = (count + TILE - 1u) / TILE;
    for (var t = 0u; t < tiles; t += 1u) {
      groups[starts[e] + t] = e;
    }
    for (var i = count; i < tiles * TILE; i += 1u) {
      groups[p.tiles + starts[e] * TILE + i] = NONE;
    }
  }
  for (var i = tid; i < pairs; i += WG) {
    let e = min(chosen[i], p.experts - 1u);
    groups[p.tiles + starts[e] * TILE + atomicAdd(&placed[e], 1u)] = i;
  }
}
