// subgroup_sizes: how many members a subgroup has, which the library does not tell.
//
// Shapes   sizes [1] u32  write
// Grid     one workgroup of 64
// Needs    subgroups.

enable subgroups;

@group(0) @binding(0) var<storage, read_write> sizes: array<u32>;

@compute @workgroup_size(64)
fn subgroup_sizes(@builtin(local_invocation_index) tid: u32, @builtin(subgroup_size) size: u32) {
  if (tid == 0u) {
    sizes[0] = size;
  }
}
