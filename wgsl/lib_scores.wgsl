// lib_scores: the scores of a tile of paged_attn_few, whose keys are shared by four invocations each, and the largest of them, through
// workgroup memory with two barriers.

const DOTS: u32 = 4u * SCORES;

var<workgroup> dots: array<f32, DOTS>; // [4, HEADS, PART]: what each of the four that share a key found

// give_dot hands in an invocation's part d of the score of its key for a head; the key begins at octet ko, and the tile has left
// positions. It is called for each head.
fn give_dot(head: u32, d: f32, ko: u32, left: u32, tid: u32, me: Place) {
  dots[tid % 4u * SCORES + head * PART + tid / 4u] = d;
}

// settle completes the scores.
fn settle(left: u32, tid: u32) {
  workgroupBarrier(); // dots is complete
  if (tid < SCORES) {
    let d = (dots[tid] + dots[SCORES + tid]) + (dots[2u * SCORES + tid] + dots[3u * SCORES + tid]);
    scores[tid] = select(LOWEST, d, tid % PART < left);
  }
  workgroupBarrier(); // scores is complete
}

// largest_of is the largest score of a head and before.
fn largest_of(head: u32, before: f32, me: Place) -> f32 {
  return largest_score(head, before);
}
