// lib_norm_linear: rows of weights, four at a time, times one row of activations, which may be normed, by LANES invocations. For kernels
// that have the constants WG, LANES, FOURS, K and NORM, and say where things are: input(m, t), which is vec4 t of row m of
// the activations, norm_weight(t), which is vec4 t of the norm's weights, and rows_of(four), which is four rows of w. Quad and Raw
// come from a lib_weight file, Place from lib_place, and add_up from lib_row_sums.
//
// K is cut into chunks of 32*LANES inputs, of which each lane has 32 neighbours. Nearly always that is one chunk, and its weights are
// on their way while the inputs are normed. Inputs go through workgroup memory, so that memory is read in order; every 8 vec4 of it
// are followed by an unused one, which keeps the lanes off each other's banks.

const QUADS: u32 = K / 32u; // of a row
const CHUNKS: u32 = (QUADS + LANES - 1u) / LANES;
const STAGED: u32 = 9u * LANES;

var<workgroup> staged: array<vec4<f32>, STAGED>;
var<workgroup> squares: array<f32, WG>;

// Inputs are 32 neighbours of a row of activations.
struct Inputs { a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>, e: vec4<f32>, f: vec4<f32>, g: vec4<f32>, h: vec4<f32> }

// Four is a lane's weights of four rows, not decoded yet, and their scales.
struct Four { a: Raw, b: Raw, c: Raw, d: Raw, sa: vec2<f32>, sb: vec2<f32>, sc: vec2<f32>, sd: vec2<f32> }

// Held is a lane's weights of a chunk.
struct Held { f0: Four, f1: Four }

fn load_four(four: u32, chunk: u32, lane: u32) -> Four {
  // Lanes past the end of the rows multiply zeros with what the last one has.
  let b = rows_of(four) * QUADS + vec4<u32>(min(chunk * LANES + lane, QUADS - 1u));
  return Four(weight_raw(b.x), weight_raw(b.y), weight_raw(b.z), weight_raw(b.w),
              weight_scale(4u * b.x), weight_scale(4u * b.y), weight_scale(4u * b.z), weight_scale(4u * b.w));
}

fn hold(first: u32, chunk: u32, lane: u32) -> Held {
  let f0 = load_four(first, chunk, lane);
  if (FOURS == 1u) {
    return Held(f0, f0);
  }
  return Held(f0, load_four(first + 1u, chunk, lane));
}

fn dot_inputs(q: Quad, v: Inputs) -> f32 {
  return (dot(q.o0.a, v.a) + dot(q.o0.b, v.b)) + (dot(q.o1.a, v.c) + dot(q.o1.b, v.d))
       + ((dot(q.o2.a, v.e) + dot(q.o2.b, v.f)) + (dot(q.o3.a, v.g) + dot(q.o3.b, v.h)));
}

fn dot_four(f: Four, v: Inputs) -> vec4<f32> {
  return vec4<f32>(f.sa.x * dot_inputs(raw_quad(f.a, f.sa.y), v), f.sb.x * dot_inputs(raw_quad(f.b, f.sb.y), v),
                   f.sc.x * dot_inputs(raw_quad(f.c, f.sc.y), v), f.sd.x * dot_inputs(raw_quad(f.d, f.sd.y), v));
}

// stage_one stages vec4 t of a chunk and gives its sum of squares.
fn stage_one(m: u32, chunk: u32, t: u32) -> f32 {
  let i = chunk * (8u * LANES) + t;
  var v = vec4<f32>(0.0);
  var square = 0.0;
  if (i < K / 4u) {
    v = input(m, i);
    if (NORM == 1u) {
      square = dot(v, v);
      v *= norm_weight(i);
    }
  }
  staged[t / 8u * 9u + t % 8u] = v;
  return square;
}

// stage stages a chunk, 8*LANES/WG vec4 an invocation, and gives their sum of squares. What would be a loop is written out, here and
// below: compilers keep loops, and what is carried round them in memory.
fn stage(m: u32, chunk: u32, tid: u32) -> f32 {
  var square = stage_one(m, chunk, tid);
  if (WG < 8u * LANES) {
    square += stage_one(m, chunk, tid + WG);
  }
  if (2u * WG < 8u * LANES) {
    square += stage_one(m, chunk, tid + 2u * WG);
    square += stage_one(m, chunk, tid + 3u * WG);
  }
  if (4u * WG < 8u * LANES) {
    square += stage_one(m, chunk, tid + 4u * WG);
    square += stage_one(m, chunk, tid + 5u * WG);
    square += stage_one(m, chunk, tid + 6u * WG);
    square += stage_one(m, chunk, tid + 7u * WG);
  }
  return square;
}

fn inputs_of(lane: u32) -> Inputs {
  let i = 9u * lane;
  return Inputs(staged[i], staged[i + 1u], staged[i + 2u], staged[i + 3u], staged[i + 4u], staged[i + 5u], staged[i + 6u], staged[i + 7u]);
}

// Sums is what a lane found of its rows, and of the sum of squares.
struct Sums { s0: vec4<f32>, s1: vec4<f32>, square: f32 }

// add_chunk adds a chunk's part to what the chunks before it gave.
fn add_chunk(m: u32, chunk: u32, h: Held, before: Sums, tid: u32, lane: u32) -> Sums {
  let square = before.square + stage(m, chunk, tid);
  if (NORM == 1u) {
    squares[tid] = square;
  }
  workgroupBarrier(); // the chunk is complete, and with the last one the squares
  let v = inputs_of(lane);
  let s0 = before.s0 + dot_four(h.f0, v);
  if (FOURS == 1u) {
    return Sums(s0, s0, square);
  }
  return Sums(s0, before.s1 + dot_four(h.f1, v), square);
}

// sum_row is the inner products of row m of the activations with the four rows first + lane, for lanes below FOURS, and of no
// meaning for others. held is what hold gives for chunk 0. All invocations of the workgroup call it, once.
fn sum_row(m: u32, first: u32, held: Held, tid: u32, lane: u32, me: Place) -> vec4<f32> {
  var found = add_chunk(m, 0u, held, Sums(vec4<f32>(0.0), vec4<f32>(0.0), 0.0), tid, lane);
  if (CHUNKS > 1u) {
    for (var chunk = 1u; chunk < CHUNKS; chunk += 1u) {
      let h = hold(first, chunk, lane);
      workgroupBarrier(); // nobody needs the chunk before any more
      found = add_chunk(m, chunk, h, found, tid, lane);
    }
  }
  return add_up(m, first, found, tid, lane, me);
}
