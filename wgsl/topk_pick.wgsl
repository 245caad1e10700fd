// topk_pick: the K best candidates of each row, best first, from the best ones of its slices as topk_slices left them.
//
//   top[m,j]  = (bits of the logit, id) of the j-th best token; (0, 0xFFFFFFFF) where there are no more
//   sums[m]   = (bits of the largest logit, bits of sum over ids < limit of exp((logit - largest) / T))
//
// The K slices with the best tokens hold the K best tokens, and none of these comes after the last one of the slices' best. So
// slices are sorted by their best; what comes before that one is collected from the first K; and each of these finds its place by
// counting those before it. More than 1,024 of them are not collected but counted where they are. With a NaN in the row the
// largest logit is a NaN, and there are no tokens. Of a race, and where the largest logit is infinite, the sum is 0.
//
// Shapes   M rows
//   draws    [M] vec4<u32>          read    as topk_slices
//   logits   [M, vocab] f32         read
//   partial  [M, parts] vec4<u32>   read    as topk_slices writes it
//   top      [M, k] vec2<u32>       write
//   sums     [M] vec2<u32>          write
// Grid     M workgroups of WG, spread over x and y: one a row.
// Traffic  reads M*(16*parts + 4*min(k/parts, 1)*limit) bytes, writes M*(8*k+8).
// Storage  4,096 + 8*WG + 8,196 bytes of workgroup memory.
// Numerics as topk_slices. In a race, orders computed here may differ from those of the slices by what another compiler rounds.
// Needs    lib_topk, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, TopKReduce.

// Tuning: the values make the file valid on its own.
const WG: u32 = 256u;    // invocations per workgroup, half of the slices that there may be

struct Params {
  vocab: u32, // elements of a row of logits
  limit: u32, // ids that take part, at most vocab
  parts: u32, // slices of a row, at most 512
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

const SLICES: u32 = 512u; // a power of two, 2*WG
const LIST: u32 = 1024u;  // tokens that are collected
const GROUP: u32 = 8u;    // ids, as in topk_slices
const SHARES: u32 = 16u;  // of which the sum is made last

var<workgroup> slices: array<vec2<u32>, SLICES>; // the best of each, (order, id)
var<workgroup> share: array<vec2<u32>, WG>;      // (order of the largest logit, bits of the sum) of some slices
var<workgroup> list: array<vec2<u32>, LIST>;     // what has been collected
var<workgroup> collected: atomic<u32>;           // so many

// before says whether a comes before b.
fn before(a: vec2<u32>, b: vec2<u32>) -> bool {
  return a.x > b.x || (a.x == b.x && a.y < b.y);
}

fn unorder(o: u32) -> u32 {
  return select(~o, o ^ SIGN, o >= SIGN);
}

// place is the id of the e-th token of the first slices in their order, and whether there is one.
fn place(e: u32, per: u32) -> u32 {
  let slice = slices[e / per].y / GROUP % p.parts;
  let r = e % per;
  return (r / GROUP * p.parts + slice) * GROUP + r % GROUP;
}

// token is the candidate (order, id) that an id is, or one after all others.
fn token(id: u32, base: u32, draw: vec4<u32>) -> vec2<u32> {
  if (id >= p.limit) {
    return vec2<u32>(0u, NONE);
  }
  return vec2<u32>(score(draw, logits[base + id], id), id);
}

// slice_at is slice i of row m.
fn slice_at(m: u32, i: u32) -> vec4<u32> {
  return select(vec4<u32>(0u, NONE, 0u, 0u), partial[m * p.parts + min(i, p.parts - 1u)], i < p.parts);
}

// collect puts a token into the list, unless it comes after the last one that is wanted.
fn collect(draw: vec4<u32>, last: vec2<u32>, bits: u32, id: u32) {
  let c = vec2<u32>(score(draw, bits, id), id);
  if (id < p.limit && !before(last, c)) {
    let at = atomicAdd(&collected, 1u);
    if (at < LIST) {
      list[at] = c;
    }
  }
}

@compute @workgroup_size(WG)
fn topk_pick(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
             @builtin(local_invocation_index) tid: u32) {
  let m = wg.y * nwg.x + wg.x;
  if (m >= step.rows) { // the same for the whole workgroup
    return;
  }
  let draw = draws[m];
  let inverse = bitcast<f32>(draw.x);
  let base = m * p.vocab;
  let one = slice_at(m, tid);
  let two = slice_at(m, tid + WG);
  slices[tid] = one.xy;
  slices[tid + WG] = two.xy;
  share[tid] = vec2<u32>(max(one.z, two.z), 0u);
  if (tid == 0u) {
    atomicStore(&collected, 0u);
  }
  workgroupBarrier(); // the largest logits of pairs of slices are complete
  var most = 0u;
  for (var j = tid % SHARES; j < WG; j += SHARES) {
    most = max(most, share[j].x);
  }
  workgroupBarrier(); // all have been read
  share[tid].x = most;
  workgroupBarrier(); // the first SHARES are complete
  for (var j = 0u; j < SHARES; j += 1u) {
    most = max(most, share[j].x);
  }
  let bits = unorder(most);
  let largest = bitcast<f32>(bits);
  var sum = bitcast<f32>(one.w) * decay((bitcast<f32>(unorder(one.z)) - largest) * inverse) +
            bitcast<f32>(two.w) * decay((bitcast<f32>(unorder(two.z)) - largest) * inverse);
  share[tid].y = bitcast<u32>(sum);
  workgroupBarrier(); // the sums of pairs are complete
  if (tid < SHARES) {
    for (var j = tid + SHARES; j < WG; j += SHARES) {
      sum += bitcast<f32>(share[j].y);
    }
    share[tid].y = bitcast<u32>(sum);
  }

  // Sorts the slices: runs of 2, 4, .. that rise and fall in turn are merged. The first barrier is for the sums too.
  for (var size = 2u; size <= SLICES; size *= 2u) {
    for (var gap = size / 2u; gap > 0u; gap /= 2u) {
      workgroupBarrier(); // the round before is complete
      let i = 2u * (tid & ~(gap - 1u)) + (tid & (gap - 1u));
      let a = slices[i];
      let b = slices[i + gap];
      if (before(b, a) == ((i & size) == 0u)) {
        slices[i] = b;
        slices[i + gap] = a;
      }
    }
  }
  workgroupBarrier(); // sorted
  if (tid == 0u) {
    sum = 0.0;
    for (var j = 0u; j < SHARES; j += 1u) {
      sum += bitcast<f32>(share[j].y);
    }
    let finite = (bits & 0x7FFFFFFFu) < 0x7F800000u;
    sums[m] = vec2<u32>(select(bits, 0x7FC00000u, most == NONE), select(0u, bitcast<u32>(sum), finite && draw.y == 0u));
  }

  // Nothing after the last of the first K slices' best is wanted. In a race that one's order may have been rounded otherwise.
  let used = min(p.k, p.parts);
  let per = (p.limit + GROUP * p.parts - 1u) / (GROUP * p.parts) * GROUP;
  let all = select(used * per, 0u, most == NONE);
  var last = vec2<u32>(0u, NONE);
  if (p.parts >= p.k) {
    last = slices[p.k - 1u];
    let o = bitcast<f32>(unorder(last.x));
    if (draw.y == 1u && abs(o) < 1.0e30) {
      last = vec2<u32>(order(bitcast<u32>(o - (1.0e-4 + 1.0e-6 * abs(o)))), NONE);
    }
  }
  // Eight invocations a group; each has eight groups of a slice at a time, whose logits it waits for together.
  for (var j = tid / GROUP; j * per < all; j += WG / GROUP) {
    let first = place(j * per, per) + tid % GROUP;
    let stride = p.parts * GROUP;
    for (var id = first; id < p.limit; id += 8u * stride) {
      let t = vec4<u32>(id, id + stride, id + 2u * stride, id + 3u * stride);
      let u = t + vec4<u32>(4u * stride);
      let a = base + min(t, vec4<u32>(p.limit - 1u));
      let b = base + min(u, vec4<u32>(p.limit - 1u));
      let x = vec4<u32>(logits[a.x], logits[a.y], logits[a.z], logits[a.w]);
      let y = vec4<u32>(logits[b.x], logits[b.y], logits[b.z], logits[b.w]);
      collect(draw, last, x.x, t.x);
      collect(draw, last, x.y, t.y);
      collect(draw, last, x.z, t.z);
      collect(draw, last, x.w, t.w);
      collect(draw, last, y.x, u.x);
      collect(draw, last, y.y, u.y);
      collect(draw, last, y.z, u.z);
      collect(draw, last, y.w, u.w);
    }
  }
  workgroupBarrier(); // all are collected
  let n = atomicLoad(&collected);
  if (n <= LIST) {
    for (var at = tid; at < n; at += WG) {
      let c = list[at];
      var rank = 0u;
      for (var j = 0u; j < n; j += 1u) {
        rank += select(0u, 1u, before(list[j], c));
      }
      if (rank < p.k) {
        top[m * p.k + rank] = vec2<u32>(logits[base + c.y], c.y);
      }
    }
  } else { // rare: tokens of a kind lie in few slices
    for (var e = tid; e < all; e += WG) {
      let c = token(place(e, per), base, draw);
      if (c.y != NONE && !before(last, c)) {
        var rank = 0u;
        for (var j = 0u; j < all && rank < p.k; j += 1u) {
          rank += select(0u, 1u, before(token(place(j, per), base, draw), c));
        }
        if (rank < p.k) {
          top[m * p.k + rank] = vec2<u32>(logits[base + c.y], c.y);
        }
      }
    }
  }
  for (var j = n + tid; j < p.k; j += WG) {
    top[m * p.k + j] = vec2<u32>(0u, NONE);
  }
}
