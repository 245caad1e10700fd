// lib_sample: which of a row's candidates is drawn, for kernels with workgroups of 64 and lib_topk.
//
// A sampler is 8 words: (1/temperature or 0, top_k or 0, top_p, -log(min_p)), (key of the sequence, number of the step), with
// 64-bit integers as halves, the low one first. Each candidate is one invocation's; then one invocation decides, with lower
// and upper bounds of all that f32 leaves open, so that it chooses what exact arithmetic would, or nothing.
//
// With x = (largest logit - logit) / temperature the weight of a token is exp(-x) and its score -x + lead of its random number:
// the logarithm of its rate in the race. Errors: a weight's is WEIGHT*(1 + x) of it (WGSL allows exp 3 + 2x units in the last
// place, and rounding x costs 1.5x); a score's DRAW + REL*(what x is made of) as in topk_partial; that of the sum that comes with
// the candidates TOTAL; that of sums of 64 weights ROUND; that of what min_p compares MIN. Logits/temperature nearer than NEAR
// may have the same weight in the host's arithmetic, which then goes by id.
//
// Candidates come in one of two orders. By their logits, what is kept is the first of them. As they arrive in the race, each must be
// held against the limits by itself: against top_p with what sample_mass has added up for the first FIRST of them. The others may
// be kept, and arrive later.

const MANY: u32 = 64u;              // candidates at most, and invocations of the workgroup
const FIRST: u32 = 12u;             // arrivals that sample_mass looks at
const COLUMNS: u32 = 15u;           // of mass: FIRST, at least and at most of what min_p keeps, near ones
const LIKELY_P: f32 = 0.5;          // top_p from which the first arrivals are nearly always kept, one of them
const LIKELY_MIN: f32 = 2.0;        // -log(min_p) likewise
const NO_ID: u32 = 0xFFFFFFFFu;     // of a row with a NaN or an infinity
const UNDECIDED: u32 = 0xFFFFFFFEu;
const NO_MIN_P: f32 = 1.0e30;
const DRAW: f32 = 1.0e-4;
const REL: f32 = 2.3841858e-7;
const TOTAL: f32 = 1.0e-4;
const WEIGHT: f32 = 9.5367432e-7;
const ROUND: f32 = 1.0e-5;
const MIN: f32 = 9.5367432e-7;
const NEAR: f32 = 9.3132257e-10;
const LEAST: f32 = 1.0e29;          // what is less likely by more is as unlikely
const FARTHEST: f32 = 1048576.0;    // logits/temperature beyond it are not looked at

var<workgroup> ids_of: array<u32, MANY>;
var<workgroup> logit_of: array<f32, MANY>;
var<workgroup> below_of: array<f32, MANY>; // x
var<workgroup> weight_of: array<f32, MANY>;
var<workgroup> score_of: array<f32, MANY>;
var<workgroup> mass_of: array<f32, COLUMNS>; // of the row; the last one is not 0 where the others are not known

// races says whether the candidates of a row are to be arrivals; with_mass, whether sample_mass runs.
fn races(how: vec4<f32>, with_mass: bool) -> bool {
  return how.x != 0.0 && bitcast<u32>(how.y) == 0u && (how.z == 1.0 || (with_mass && how.z >= LIKELY_P)) && how.w >= LIKELY_MIN;
}

// step_key is the key of the random numbers of a step.
fn step_key(stream: vec4<u32>) -> vec2<u32> {
  return random(stream.xy ^ random(stream.zw, 0u), 0u);
}

// enter is what invocation i does for its candidate (bits of the logit, id); largest is the largest logit.
fn enter(i: u32, candidate: vec2<u32>, largest: f32, how: vec4<f32>, stream: vec4<u32>) {
  let some = candidate.y != NO_ID && candidate.x != 0xFF800000u;
  let logit = bitcast<f32>(candidate.x);
  let below = min((largest - select(largest, logit, some)) * how.x, LEAST);
  ids_of[i] = candidate.y;
  logit_of[i] = logit;
  below_of[i] = below;
  weight_of[i] = select(0.0, exp(-min(below, 80.0)), some);
  score_of[i] = lead(random(step_key(stream), candidate.y)) - below;
}

// decide is the token of a row whose k candidates have entered, or a code. bits are those of the largest logit, total is the sum
// of the weights of all tokens, whole says that there are no others than the candidates, and race that these are arrivals.
fn decide(k: u32, bits: u32, total: f32, whole: bool, race: bool, how: vec4<f32>) -> u32 {
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u || bits == 0x7F800000u) {
    return NO_ID;
  }
  if (bits == 0xFF800000u) { // the host knows what that means
    return UNDECIDED;
  }
  if (race && (how.x == 0.0 || bitcast<u32>(how.y) != 0u)) { // of these rows no race is wanted
    return UNDECIDED;
  }
  if (how.x == 0.0) {
    return ids_of[0];
  }
  let far = abs(bitcast<f32>(bits)) * how.x;
  if (!(far <= FARTHEST)) {
    return UNDECIDED;
  }
  var count = 0u; // candidates
  var some = 0u;  // of these, with a logit above -infinity, which come first
  for (var i = 0u; i < k; i += 1u) {
    let there = ids_of[i] != NO_ID;
    count += select(0u, 1u, there);
    some += select(0u, 1u, there && bitcast<u32>(logit_of[i]) != 0xFF800000u);
  }
  if (some == 0u) {
    return UNDECIDED;
  }
  var kept = vec2<u32>(some, some); // so many are certainly kept, so many may be
  if (!race) {
    kept = filtered(some, count, total, whole, how);
    if (kept.y == 0u) {
      return UNDECIDED;
    }
  }
  var first = MANY;
  var sure = false;
  var best = -1.0e30;
  var second = -1.0e30;
  for (var i = 0u; i < kept.y; i += 1u) {
    var may = vec2<bool>(i < kept.x, true); // certainly kept, may be kept
    if (race) {
      may = passes(i, how);
    }
    if (may.y) {
      let s = score_of[i];
      second = max(second, min(s, best));
      if (s > best) {
        best = s;
        first = i;
        sure = may.x;
      }
    }
  }
  let apart = 2.0 * (DRAW + REL * (far + 41.0));
  if (race && !whole && some == count && (first >= some || best - score_of[some - 1u] <= apart)) {
    return UNDECIDED; // one that is no candidate may come before
  }
  return select(UNDECIDED, ids_of[min(first, MANY - 1u)], sure && best - second > apart);
}

// passes says of arrival i whether it is certainly kept, and whether it may be.
fn passes(i: u32, how: vec4<f32>) -> vec2<bool> {
  let below = below_of[i];
  var sure = below == 0.0 || below <= how.w * (1.0 - MIN);
  var may = sure || below < how.w * (1.0 + MIN);
  if (how.z < 1.0) {
    let before = mass_of[min(i, FIRST - 1u)];
    let known = i < FIRST && mass_of[FIRST + 2u] == 0.0;
    sure = sure && known && (before == 0.0 || before * (1.0 + TOTAL) < how.z * mass_of[FIRST] * (1.0 - TOTAL));
    may = may && (!known || before == 0.0 || before * (1.0 - TOTAL) < how.z * mass_of[FIRST + 1u] * (1.0 + TOTAL));
  }
  return vec2<bool>(sure, may);
}

// near says whether candidate i and the one before it may have the same weight.
fn near(i: u32, how: vec4<f32>) -> bool {
  return (logit_of[i - 1u] - logit_of[i]) * how.x < NEAR;
}

// filtered is how many of the first candidates top_k, min_p and top_p certainly keep, and how many they may keep; 0 and 0 if
// tokens that are no candidates may be kept.
//
// Of tokens in descending order with weights w_1, w_2, .. of sum W, top_p keeps the first, and token n+1 while
// w_1 + .. + w_n < top_p * W.
fn filtered(some: u32, count: u32, total: f32, whole: bool, how: vec4<f32>) -> vec2<u32> {
  let top_k = bitcast<u32>(how.y);
  let limits = top_k > 0u && top_k < count;
  let least_logit = logit_of[select(0u, min(top_k, some) - 1u, limits)];
  var sure = 0u;
  var may = 0u;
  var low = 0.0; // what all that is kept weighs, at least
  var high = 0.0;
  var slack = 0.0; // the error of these sums
  for (var i = 0u; i < some; i += 1u) {
    let below = below_of[i];
    if ((limits && logit_of[i] < least_logit) || (below > 0.0 && below >= how.w * (1.0 + MIN))) {
      break;
    }
    let w = weight_of[i];
    if (below == 0.0 || below <= how.w * (1.0 - MIN)) {
      sure += 1u;
      low += w;
    }
    may += 1u;
    high += w;
    slack += w * WEIGHT * (1.0 + below);
  }
  let inside = whole || may < count; // what is less likely than the last candidate is dropped too
  if (!inside) {
    if (how.z == 1.0) {
      return vec2<u32>(0u, 0u);
    }
    if (top_k == 0u && how.w >= NO_MIN_P) {
      low = max(low, total * (1.0 - TOTAL));
    }
    high = total * (1.0 + TOTAL);
    if (!(high >= low)) {
      return vec2<u32>(0u, 0u); // not a sum
    }
  }
  if (how.z == 1.0) {
    return vec2<u32>(sure, may);
  }
  let least = how.z * (low - slack) * (1.0 - ROUND);
  let most = how.z * (high + slack) * (1.0 + ROUND);
  var first = 1u;
  var last = 1u;
  var sum = weight_of[0];
  var off = sum * WEIGHT;
  for (var i = 1u; i < may; i += 1u) {
    first += select(0u, 1u, sum + off < least);
    last += select(0u, 1u, sum - off < most);
    let w = weight_of[i];
    sum += w;
    off += w * WEIGHT * (1.0 + below_of[i]);
  }
  first = min(first, sure);
  if (first < may) {
    var start = first;
    while (start > 0u && near(start, how)) {
      start -= 1u;
    }
    first = select(first, start, logit_of[start] != logit_of[first]); // equals are in the order of ids
  }
  var end = last;
  while (end < may && near(end, how)) {
    end += 1u;
  }
  last = select(last, end, logit_of[end - 1u] != logit_of[last - 1u]);
  if (!inside && (last == count || logit_of[last - 1u] <= logit_of[some - 1u])) {
    return vec2<u32>(0u, 0u);
  }
  return vec2<u32>(first, last);
}

// wanted is the draw of a step: the order in which it wants candidates.
fn wanted(how: vec4<f32>, stream: vec4<u32>, with_mass: bool) -> vec4<u32> {
  let inverse = select(how.x, 1.0, how.x == 0.0);
  if (!races(how, with_mass)) {
    return vec4<u32>(bitcast<u32>(inverse), 0u, 0u, 0u);
  }
  return vec4<u32>(bitcast<u32>(inverse), 1u, step_key(stream));
}
