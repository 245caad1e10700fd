// lib_scores_subgroups: lib_scores by subgroups: the four that share a key add up by shuffles, and so the members of a subgroup find the
// largest of their scores. One barrier.

const SEGMENTS: u32 = WG / SEGMENT;
const MAXIMA: u32 = HEADS * SEGMENTS;

var<workgroup> maxima: array<f32, MAXIMA>; // [HEADS, SEGMENTS]

// whole_dot is the score of the key that begins at octet ko, without anybody's help.
fn whole_dot(head: u32, ko: u32) -> f32 {
  var d = 0.0;
  for (var i = 0u; i < OCTETS; i += 1u) {
    d += dot_key(k_octet(ko + i), head, i);
  }
  return d * k_scale(ko);
}

fn give_dot(head: u32, d: f32, ko: u32, left: u32, tid: u32, me: Place) {
  var s = d + subgroupShuffleXor(d, 1u);
  s += subgroupShuffleXor(s, 2u);
  s = select(LOWEST, s, tid / 4u < left);
  var most = s;
  if (SEGMENT > 4u) {
    most = max(most, subgroupShuffleXor(most, 4u));
  }
  if (SEGMENT > 8u) {
    most = max(most, subgroupShuffleXor(most, 8u));
  }
  if (SEGMENT > 16u) {
    most = max(most, subgroupShuffleXor(most, 16u));
  }
  if (tid % SEGMENT == 0u) {
    maxima[head * SEGMENTS + tid / SEGMENT] = most;
  }
  if (tid % 4u == 0u) {
    if (!is_whole(me)) {
      s = select(LOWEST, whole_dot(head, ko), tid / 4u < left);
    }
    scores[head * PART + tid / 4u] = s;
  }
}

fn settle(left: u32, tid: u32) {
  workgroupBarrier(); // scores and maxima are complete
}

fn largest_of(head: u32, before: f32, me: Place) -> f32 {
  if (!is_whole(me)) {
    return largest_score(head, before);
  }
  var now = before;
  for (var i = head * SEGMENTS; i < head * SEGMENTS + SEGMENTS; i += 4u) {
    now = max(now, max(max(maxima[i], maxima[i + 1u]), max(maxima[i + 2u], maxima[i + 3u])));
  }
  return now;
}
