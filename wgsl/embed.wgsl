// embed: the embedding row of each token, from a table that may be cut into parts of rows.
//
//   x[m] = table[id(m) - row0]   for row0 <= id(m) < row0 + rows; other rows of x are left alone
//
// Shapes   M tokens, V rows in this part of the table
//   tokens  [M] vec4<u32>         read   (id, position, slot, sequence)
//   w       [V, dim] packed       read   as internal/quant/format.go says; the buffer is padded to 16 bytes
//   scales  [V, S] u32            read   S words a row likewise; a dummy for f32, f16 and bf16
//   x       [M, dim] f32          write
// Grid     ceil(M*dim/8 / WG) workgroups of WG, spread over x and y.
// Traffic  reads M rows of the table and their scales, writes 4*M*dim bytes.
// Storage  no workgroup memory.
// Numerics rounded as Decode of internal/quant rounds.
// Needs    a lib_weight file, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, Embed.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 64u; // invocations per workgroup

struct Params {
  k: u32,    // dim, elements of a row, a multiple of 8
  row0: u32, // first id of this part
  rows: u32, // ids in this part
  pad0: u32,
}

struct Step {
  rows: u32, // M, the tokens that this step really has
  pad0: u32,
  pad1: u32,
  pad2: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read> tokens: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> scales: array<u32>;
@group(0) @binding(5) var<storage, read_write> x: array<vec4<f32>>;

@compute @workgroup_size(WG)
fn embed(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
         @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * nwg.x + wg.x) * WG + tid;
  let octets = p.k / 8u;
  let m = i / octets;
  if (m >= step.rows) {
    return;
  }
  let id = tokens[m].x;
  // The difference wraps to a large number for an id below row0.
  if (id - p.row0 >= p.rows) {
    return;
  }
  let o = (id - p.row0) * octets + (i - m * octets);
  let s = weight_scale(o);
  let q = weight_octet(o, s.y);
  x[2u * i] = s.x * q.a;
  x[2u * i + 1u] = s.x * q.b;
}
