// lib_parts: sums of the parts of a linear layer whose K was split over workgroups, for kernels that bind `parts` as an array of Part, which
// they say, and whose Params have parts.

// add_parts adds the parts of what lies at `at` of the first one to sum; the next part lies stride further. Four loads at a time need not wait
// for each other.
fn add_parts(first: Part, start: u32, stride: u32) -> Part {
  var sum = first;
  var at = start;
  var s = 0u;
  for (; s + 4u <= p.parts; s += 4u) {
    let a = parts[at];
    let b = parts[at + stride];
    let c = parts[at + 2u * stride];
    let d = parts[at + 3u * stride];
    sum = (((sum + a) + b) + c) + d;
    at += 4u * stride;
  }
  for (; s < p.parts; s += 1u) {
    sum += parts[at];
    at += stride;
  }
  return sum;
}
