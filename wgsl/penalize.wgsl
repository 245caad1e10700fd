// penalize: changes the logits of rows with biases and penalties, as internal/sample does on the host.
//
//   of rows whose flags have bit 0, with r = flags / 256, and of ids with a count c = counts[r,id] that is not 0, in this order:
//     c has bit 30:  listed[r] has the id: with bit 31 of it, and position < until, the logit is -infinity; with bit 30, its bias
//                    is added
//     c has bit 31:  logit / repetition where it is above 0, logit * repetition elsewhere
//                    with n = c mod 2^30 above 0, logit - frequency*n - presence
//                    a result beyond the floats is the largest float there is
//   A logit of -infinity stays what it is.
//
// Shapes   M rows, R records
//   tokens     [M] vec4<u32>          read        (id, position, slot, sequence)
//   states     [M] vec4<u32>          read        as advance; bit 0 and bits 8 to 31 of flags
//   penalties  [R, 2] vec4<u32>       read        (bits of repetition, frequency, presence, entries of listed), (until, 0, 0, 0)
//   listed     [R, entries] vec2<u32> read        (id | bias 1 << 30 | ban 1 << 31, bits of the bias), by id
//   counts     [R, vocab] u32         read        as advance
//   logits     [M, vocab] f32         read_write
// Grid     ceil(M*ceil(limit/4) / WG) workgroups of WG, spread over x and y: four ids an invocation.
// Traffic  reads 4*M*limit bytes of counts, of rows with the flag, and little else.
// Storage  no workgroup memory.
// Numerics exact but for results below 2^-126: sums and products are kept apart by an integer operation each, for a compiler may
//          fuse them, and quotients, which devices round as they like, are divided bit by bit.
// Needs    nothing beyond the portable subset.
// Ref      internal/ref, Penalize.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 64u; // invocations per workgroup

struct Params {
  vocab: u32,   // elements of a row of logits and of counts
  limit: u32,   // ids that take part, at most vocab
  entries: u32, // elements of a row of listed
  zero: u32,    // 0, which no compiler knows
}

struct Step {
  rows: u32, // M, the rows that this step really has
  pad0: u32,
  pad1: u32,
  pad2: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read> tokens: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> states: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> penalties: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read> listed: array<vec2<u32>>;
@group(0) @binding(6) var<storage, read> counts: array<u32>;
@group(0) @binding(7) var<storage, read_write> logits: array<u32>;

const IDS: u32 = 4u; // of an invocation
const SEEN: u32 = 0x80000000u;
const LISTED: u32 = 0x40000000u;
const SIGN: u32 = 0x80000000u;
const INFINITY: u32 = 0x7F800000u;
const LARGEST: u32 = 0x7F7FFFFFu;

// apart is x as if it had been stored.
fn apart(x: f32) -> f32 {
  return bitcast<f32>(bitcast<u32>(x) ^ p.zero);
}

// quotient is a / b for positive a and b, rounded to nearest as IEEE 754 has it if all three are normal.
fn quotient(a: f32, b: f32) -> f32 {
  let x = bitcast<u32>(a);
  let y = bitcast<u32>(b);
  let divisor = (y & 0x7FFFFFu) | 0x800000u;
  var rest = (x & 0x7FFFFFu) | 0x800000u;
  let less = rest < divisor;
  let exponent = i32(x >> 23u) - i32(y >> 23u) + 127 - select(0, 1, less);
  if (x < 0x800000u || y < 0x800000u || exponent < 1 || exponent > 254) {
    return a / b;
  }
  rest = select(rest, rest << 1u, less);
  var q = 0u;
  for (var i = 0u; i < 24u; i += 1u) {
    let one = rest >= divisor;
    q = (q << 1u) | select(0u, 1u, one);
    rest = (rest - select(0u, divisor, one)) << 1u;
  }
  let up = rest > divisor || (rest == divisor && (q & 1u) == 1u);
  return bitcast<f32>((u32(exponent) << 23u) + (q & 0x7FFFFFu) + select(0u, 1u, up));
}

// entry is where the id is in a row of listed that has n.
fn entry(first: u32, n: u32, id: u32) -> vec2<u32> {
  var low = 0u;
  var high = n;
  while (low + 1u < high) {
    let middle = (low + high) / 2u;
    if ((listed[first + middle].x & 0x3FFFFFFFu) <= id) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return listed[first + low];
}

@compute @workgroup_size(WG)
fn penalize(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
            @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * nwg.x + wg.x) * WG + tid;
  let per = (p.limit + IDS - 1u) / IDS;
  let m = i / per;
  if (m >= step.rows) {
    return;
  }
  let flags = states[m].w;
  if ((flags & 1u) == 0u) {
    return;
  }
  let r = flags >> 8u;
  let penalty = penalties[2u * r];
  for (var id = i - m * per; id < p.limit; id += per) {
    let c = counts[r * p.vocab + id];
    if (c == 0u) {
      continue;
    }
    var bits = logits[m * p.vocab + id];
    if ((c & LISTED) != 0u) {
      let e = entry(r * p.entries, penalty.w, id);
      if (e.x >= SEEN && tokens[m].y < penalties[2u * r + 1u].x) {
        bits = SIGN | INFINITY;
      }
      if ((e.x & LISTED) != 0u && (bits & INFINITY) != INFINITY) {
        bits = bitcast<u32>(apart(bitcast<f32>(bits) + bitcast<f32>(e.y)));
      }
    }
    if ((c & SEEN) != 0u) {
      let repetition = bitcast<f32>(penalty.x);
      if (bits == INFINITY) {
        bits = LARGEST;
      } else if ((bits & INFINITY) != INFINITY) {
        var l = bitcast<f32>(bits);
        if (l > 0.0) {
          l = quotient(l, repetition);
        } else {
          l = apart(l * repetition);
        }
        let n = c & 0x3FFFFFFFu;
        if (n > 0u) {
          l = apart(l - apart(bitcast<f32>(penalty.y) * f32(n)));
          l = apart(l - bitcast<f32>(penalty.z));
        }
        bits = bitcast<u32>(l);
        bits = select(bits, (bits & SIGN) | LARGEST, (bits & INFINITY) == INFINITY);
      }
    }
    logits[m * p.vocab + id] = bits;
  }
}
