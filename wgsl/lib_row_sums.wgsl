// lib_row_sums: adds up what the LANES invocations of lib_norm_linear found, through workgroup memory with two barriers.

const SLOTS: u32 = FOURS * WG;
const QUARTER: u32 = LANES / 4u;
const FOLD: u32 = 16u; // sums of squares that are left for the last round

var<workgroup> parts: array<vec4<f32>, SLOTS>;

fn fold_four(at: u32) {
  parts[at] = (parts[at] + parts[at + QUARTER]) + (parts[at + 2u * QUARTER] + parts[at + 3u * QUARTER]);
}

fn sum_eight(at: u32) -> vec4<f32> {
  return ((parts[at] + parts[at + 1u]) + (parts[at + 2u] + parts[at + 3u]))
       + ((parts[at + 4u] + parts[at + 5u]) + (parts[at + 6u] + parts[at + 7u]));
}

// fold_squares leaves the sums of squares of all in the first FOLD.
fn fold_squares(tid: u32) {
  if (NORM == 1u && tid < FOLD) {
    var sum = squares[tid];
    for (var i = tid + FOLD; i < WG; i += FOLD) {
      sum += squares[i];
    }
    squares[tid] = sum;
  }
}

fn sum_squares() -> f32 {
  return ((squares[0] + squares[1]) + (squares[2] + squares[3])) + ((squares[4] + squares[5]) + (squares[6] + squares[7]))
       + (((squares[8] + squares[9]) + (squares[10] + squares[11])) + ((squares[12] + squares[13]) + (squares[14] + squares[15])));
}

// add_up is the inner products of row m of the activations with the four rows first + lane, for lanes below FOURS, and of no
// meaning for others. All invocations of the workgroup call it, once, each with what it found.
fn add_up(m: u32, first: u32, found: Sums, tid: u32, lane: u32, me: Place) -> vec4<f32> {
  parts[tid] = found.s0;
  if (FOURS > 1u) {
    parts[WG + tid] = found.s1;
  }
  fold_squares(tid);
  workgroupBarrier(); // parts are complete
  if (lane < QUARTER) {
    fold_four(tid);
    if (FOURS > 1u) {
      fold_four(WG + tid);
    }
  }
  workgroupBarrier(); // a quarter of them holds the sums
  var z = vec4<f32>(0.0);
  if (lane < FOURS) {
    let at = lane * WG + tid - lane;
    z = sum_eight(at);
    if (QUARTER > 8u) {
      z += sum_eight(at + 8u);
    }
    if (QUARTER > 16u) {
      z += sum_eight(at + 16u);
    }
    if (NORM == 1u) {
      z *= inverseSqrt(sum_squares() / f32(K) + p.eps);
    }
  }
  return z;
}
