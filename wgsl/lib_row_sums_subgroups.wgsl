// lib_row_sums_subgroups: lib_row_sums by subgroups: members of one add up what they found by shuffles, and only what several of them
// found goes through workgroup memory, with one barrier. Nothing does where one has all LANES.

const SEGMENTS: u32 = WG / SEGMENT;
const SHARING: u32 = LANES / SEGMENT; // segments that share rows
const PARTS_KEPT: u32 = (FOURS + NORM) * SEGMENTS;

var<workgroup> parts: array<vec4<f32>, PARTS_KEPT>;

fn add_neighbours(v: vec4<f32>) -> vec4<f32> {
  var s = v;
  if (SEGMENT > 16u) {
    s += subgroupShuffleXor(s, 16u);
  }
  if (SEGMENT > 8u) {
    s += subgroupShuffleXor(s, 8u);
  }
  if (SEGMENT > 4u) {
    s += subgroupShuffleXor(s, 4u);
  }
  s += subgroupShuffleXor(s, 2u);
  return s + subgroupShuffleXor(s, 1u);
}

fn add_neighbour_squares(v: f32) -> f32 {
  var s = v;
  if (SEGMENT > 16u) {
    s += subgroupShuffleXor(s, 16u);
  }
  if (SEGMENT > 8u) {
    s += subgroupShuffleXor(s, 8u);
  }
  if (SEGMENT > 4u) {
    s += subgroupShuffleXor(s, 4u);
  }
  s += subgroupShuffleXor(s, 2u);
  return s + subgroupShuffleXor(s, 1u);
}

// squares_of is a lane's part of the sum of squares of all.
fn squares_of(lane: u32) -> f32 {
  var sum = squares[lane];
  if (WG > LANES) {
    sum += squares[lane + LANES];
  }
  if (WG > 2u * LANES) {
    sum += squares[lane + 2u * LANES] + squares[lane + 3u * LANES];
  }
  if (WG > 4u * LANES) {
    sum += (squares[lane + 4u * LANES] + squares[lane + 5u * LANES]) + (squares[lane + 6u * LANES] + squares[lane + 7u * LANES]);
  }
  return sum;
}

// sum_segments adds up the parts of the segments that share rows.
fn sum_segments(at: u32) -> vec4<f32> {
  var z = parts[at];
  if (SHARING > 1u) {
    z += parts[at + 1u];
  }
  if (SHARING > 2u) {
    z += parts[at + 2u];
  }
  if (SHARING > 3u) {
    for (var i = 3u; i < SHARING; i += 1u) {
      z += parts[at + i];
    }
  }
  return z;
}

// alone computes the products of a four with row m without anybody's help.
fn alone(m: u32, four: u32) -> vec4<f32> {
  var z = vec4<f32>(0.0);
  var square = 0.0;
  for (var i = 0u; i < QUADS; i += 1u) {
    var v = Inputs(input(m, 8u * i), input(m, 8u * i + 1u), input(m, 8u * i + 2u), input(m, 8u * i + 3u),
                   input(m, 8u * i + 4u), input(m, 8u * i + 5u), input(m, 8u * i + 6u), input(m, 8u * i + 7u));
    if (NORM == 1u) {
      square += ((dot(v.a, v.a) + dot(v.b, v.b)) + (dot(v.c, v.c) + dot(v.d, v.d)))
              + ((dot(v.e, v.e) + dot(v.f, v.f)) + (dot(v.g, v.g) + dot(v.h, v.h)));
      v = Inputs(v.a * norm_weight(8u * i), v.b * norm_weight(8u * i + 1u), v.c * norm_weight(8u * i + 2u), v.d * norm_weight(8u * i + 3u),
                 v.e * norm_weight(8u * i + 4u), v.f * norm_weight(8u * i + 5u), v.g * norm_weight(8u * i + 6u), v.h * norm_weight(8u * i + 7u));
    }
    z += dot_four(load_four(four, i / LANES, i % LANES), v);
  }
  if (NORM == 1u) {
    z *= inverseSqrt(square / f32(K) + p.eps);
  }
  return z;
}

fn add_up(m: u32, first: u32, found: Sums, tid: u32, lane: u32, me: Place) -> vec4<f32> {
  let s0 = add_neighbours(found.s0);
  var s1 = s0;
  if (FOURS > 1u) {
    s1 = add_neighbours(found.s1);
  }
  var square = 0.0;
  if (NORM == 1u) {
    square = add_neighbour_squares(squares_of(lane));
  }
  var z = s0;
  if (SHARING > 1u) {
    let segment = tid / SEGMENT;
    if (tid % SEGMENT == 0u) {
      parts[segment] = s0;
      if (FOURS > 1u) {
        parts[SEGMENTS + segment] = s1;
      }
      if (NORM == 1u) {
        parts[FOURS * SEGMENTS + segment] = vec4<f32>(square);
      }
    }
    workgroupBarrier(); // parts are complete
    if (lane < FOURS) {
      let begin = (tid - lane) / SEGMENT;
      z = sum_segments(lane * SEGMENTS + begin);
      if (NORM == 1u) {
        square = sum_segments(FOURS * SEGMENTS + begin).x;
      }
    }
  } else if (lane == 1u) {
    z = s1;
  }
  if (NORM == 1u) {
    z *= inverseSqrt(square / f32(K) + p.eps);
  }
  if (lane < FOURS && !is_whole(me)) {
    z = alone(m, first + lane);
  }
  return z;
}
