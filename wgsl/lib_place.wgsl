// lib_place: which invocation of its workgroup one is. For kernels that have a variant which needs to know its neighbours too;
// lib_place_subgroups then stands for this file.

struct Place { @builtin(local_invocation_index) index: u32 }

// index_of is the number of an invocation, from 0 to WG-1.
fn index_of(me: Place) -> u32 {
  return me.index;
}
