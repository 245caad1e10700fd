// lib_place_subgroups: lib_place by subgroups: invocations with neighbouring numbers belong to one subgroup.
//
// WebGPU promises neither the order of invocations in a subgroup nor full subgroups. So an invocation's number is made of those that
// it has among the subgroups, which are unique, and lie below WG where all subgroups are full. Elsewhere numbers are the usual ones,
// nothing can be said of neighbours, and whoever asks is_whole computes alone what he would have asked them for: slow, and right.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const SEGMENT: u32 = 32u; // neighbours in a subgroup: the smallest that the device has, but 32 at most; a power of two, at least 4

struct Place {
  @builtin(local_invocation_index) index: u32,
  @builtin(subgroup_id) subgroup: u32,
  @builtin(num_subgroups) subgroups: u32,
  @builtin(subgroup_size) size: u32,
  @builtin(subgroup_invocation_id) member: u32,
}

// is_whole says whether invocations i*SEGMENT to (i+1)*SEGMENT-1 are members of one subgroup, in this order.
fn is_whole(me: Place) -> bool {
  return me.subgroups * me.size == WG && me.size >= SEGMENT;
}

fn index_of(me: Place) -> u32 {
  return select(me.index, me.subgroup * me.size + me.member, is_whole(me));
}
