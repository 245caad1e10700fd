// matmul_tile: a linear layer for many tokens, by tiles in workgroup memory and results in registers; K may be split over workgroups.
//
//   z[m, j] = dot(x[m], w[j])                           over the inputs of one part
//   y[part, m, y_offset+j] (+)= z[m, j] + bias[y_offset+j]   without GATED
//   y[m, j] = silu(z[m, j] + bias[j]) * (z[m, half+j] + bias[half+j])   with GATED, for j < half = N/2; K is not split then
//
// One workgroup computes TILE_M x TILE_N results in SLICES slices of TX*TY invocations. Each slice takes its share of every stretch
// of 4*VECS inputs; one invocation of it has TM tokens ty + TY*i and 8 rows tx + TX*i. A tile line holds the stretch of one token or
// row, the weights decoded. The inputs of the next stretch are fetched while this one is computed. In the end the slices exchange
// what they found, one token of an invocation at a time. With GATED the upper half of a tile's rows are those of the other half of w.
//
// Shapes   M tokens, N rows of w (one part of a matrix), K inputs
//   x       [M, x_stride] f32          read
//   w       [N, K] packed              read   as internal/quant/format.go says; the buffer is padded to 16 bytes
//   scales  [N, S] u32                 read   S words a row likewise; a dummy for f32, f16 and bf16
//   bias    [y_stride] f32             read   a dummy without bias; with GATED [N]
//   y       [parts, M, y_stride] f32   read_write
// Grid     (ceil(N/TILE_N), ceil(M/TILE_M), parts) workgroups of WG.
// Traffic  reads w and scales ceil(M/TILE_M) times and x ceil(N/TILE_N) times, writes 4*parts*M*N bytes. Bound by arithmetic.
// Storage  16,384 bytes of workgroup memory, all that WebGPU guarantees.
// Numerics f32 sums: in the order of K within a slice and part, then over the slices; weights are rounded as those of Decode of
//          internal/quant. The order does not depend on the step.
// Needs    a lib_weight file, appended by wgsl.Source; nothing beyond the portable subset.
// Ref      internal/ref, MatmulParts.

// Tuning: replaced by wgsl.Source; the values here make the file valid on its own.
const WG: u32 = 256u;  // invocations per workgroup: 128, 256
const TX: u32 = 8u;    // invocations along the rows of w: 8, 16
const TY: u32 = 8u;    // invocations along the tokens: 8, 16
const TM: u32 = 8u;    // tokens of an invocation: 4, 8
const VECS: u32 = 8u;  // vectors of a tile line: 4, 8, so that the lines of a tile are at most 1,024 vectors
const GATED: u32 = 0u; // 1: silu of the upper half of rows times the lower half

struct Params {
  k: u32,        // K, elements, a multiple of 8
  n: u32,        // N, rows of this part of the matrix
  x_stride: u32, // elements of a row of x, a multiple of 4
  y_stride: u32, // elements of a row of y
  y_offset: u32, // column of y that belongs to row 0 of w
  flags: u32,    // bit 0: add to y, bit 1: there is a bias
  octets: u32,   // inputs of a part of K over 8, a multiple of VECS/2
  parts: u32,    // of K
}

struct Step {
  rows: u32, // M, the tokens that this step really has
  pad0: u32,
  pad1: u32,
  pad2: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> scales: array<u32>;
@group(0) @binding(5) var<storage, read> bias: array<f32>;
@group(0) @binding(6) var<storage, read_write> y: array<f32>;

const TILE_M: u32 = TY * TM;
const TILE_N: u32 = TX * 8u;
const SLICES: u32 = WG / (TX * TY);
const SHARE: u32 = VECS / SLICES;         // vectors of a line that a slice takes
const LINE_OCTETS: u32 = VECS / 2u;
const RUN_X: u32 = TY * VECS;             // vectors of the lines of which an invocation has one
const RUN_W: u32 = TX * VECS;
const SWIZZLE: u32 = 8u / VECS;           // lines that lie in one run of banks
const HALF_N: u32 = TILE_N / 2u;
const LOAD_LINES: u32 = WG / LINE_OCTETS; // lines that one load of all invocations covers: half of them, all, or more
const TWICE_W: bool = TILE_N > LOAD_LINES;
const TWICE_X: bool = TILE_M > LOAD_LINES;

// Lines of x and of w, those of one invocation in one column. The first index is a constant wherever it matters: implementations clamp
// others, so that all loads of a round share one clamped index.
var<workgroup> xs: array<array<vec4<f32>, RUN_X>, TM>;
var<workgroup> ws: array<array<vec4<f32>, RUN_W>, 8>; // in the end sums

// Four is four neighbouring inputs of four rows: k0 has the first of each.
struct Four { k0: vec4<f32>, k1: vec4<f32>, k2: vec4<f32>, k3: vec4<f32> }

fn turn(a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) -> Four {
  return Four(vec4<f32>(a.x, b.x, c.x, d.x), vec4<f32>(a.y, b.y, c.y, d.y),
              vec4<f32>(a.z, b.z, c.z, d.z), vec4<f32>(a.w, b.w, c.w, d.w));
}

fn mac(sum: vec4<f32>, v: vec4<f32>, f: Four) -> vec4<f32> {
  let a = fma(vec4<f32>(v.y), f.k1, fma(vec4<f32>(v.x), f.k0, sum));
  return fma(vec4<f32>(v.w), f.k3, fma(vec4<f32>(v.z), f.k2, a));
}

// place is where vector c of line r lies: eight neighbouring lines in different banks, and lines 8 apart alike.
fn place(r: u32, c: u32) -> u32 {
  return r * VECS + (c ^ ((r / SWIZZLE) & (VECS - 1u)));
}

// Where an invocation stands in its slice: neighbours read the same line of w, and those two apart the same line of x, for GPUs serve
// such loads of vectors at once.
fn tx_of(local: u32) -> u32 {
  return ((local >> 1u) & 7u) + 8u * (local / (8u * TY));
}

fn ty_of(local: u32) -> u32 {
  return ((local & 1u) + 2u * (local >> 4u)) % TY;
}

// row_of is the row of w behind line c of the workgroup's tile.
fn row_of(group: u32, c: u32) -> u32 {
  if (GATED == 1u) {
    let half = p.n / 2u;
    let j = min(group * HALF_N + c % HALF_N, half - 1u);
    return select(j, half + j, c >= HALF_N);
  }
  return min(group * TILE_N + c, p.n - 1u);
}

fn bias_at(column: u32) -> f32 {
  if ((p.flags & 2u) == 0u) {
    return 0.0;
  }
  return bias[column];
}

fn put(part: u32, m: u32, j: u32, sum: f32) {
  if (m >= step.rows || j >= p.n) {
    return;
  }
  let column = p.y_offset + j;
  let at = (part * step.rows + m) * p.y_stride + column;
  var v = sum + bias_at(column);
  if ((p.flags & 1u) != 0u) {
    v += y[at];
  }
  y[at] = v;
}

fn put_gated(m: u32, j: u32, gate: f32, up: f32) {
  let half = p.n / 2u;
  if (m >= step.rows || j >= half) {
    return;
  }
  let g = gate + bias_at(j);
  y[m * p.y_stride + j] = g / (1.0 + exp(min(-g, 88.0))) * (up + bias_at(half + j));
}

// put8 writes what an invocation has of one token.
fn put8(wg: vec3<u32>, m: u32, tx: u32, lo: vec4<f32>, hi: vec4<f32>) {
  if (GATED == 1u) {
    let j = wg.x * HALF_N + tx;
    put_gated(m, j, lo.x, hi.x);
    put_gated(m, j + TX, lo.y, hi.y);
    put_gated(m, j + 2u * TX, lo.z, hi.z);
    put_gated(m, j + 3u * TX, lo.w, hi.w);
    return;
  }
  let j = wg.x * TILE_N + tx;
  put(wg.z, m, j, lo.x);
  put(wg.z, m, j + TX, lo.y);
  put(wg.z, m, j + 2u * TX, lo.z);
  put(wg.z, m, j + 3u * TX, lo.w);
  put(wg.z, m, j + 4u * TX, hi.x);
  put(wg.z, m, j + 5u * TX, hi.y);
  put(wg.z, m, j + 6u * TX, hi.z);
  put(wg.z, m, j + 7u * TX, hi.w);
}

// sums is vector i of what slices exchange.
fn sums(i: u32) -> vec4<f32> {
  return ws[i / RUN_W][i % RUN_W];
}

// finish adds up over the slices what invocations have of their token i, and writes it. All of the workgroup call it.
fn finish(wg: vec3<u32>, tid: u32, i: u32, lo: vec4<f32>, hi: vec4<f32>) {
  let local = tid % (TX * TY);
  let tx = tx_of(local);
  let m = wg.y * TILE_M + ty_of(local) + TY * i;
  if (SLICES == 1u) {
    put8(wg, m, tx, lo, hi);
    return;
  }
  workgroupBarrier(); // what was there before has been read
  ws[tid / RUN_W][tid % RUN_W] = lo;
  ws[(tid + WG) / RUN_W][(tid + WG) % RUN_W] = hi;
  workgroupBarrier(); // the sums of all slices are complete
  if (tid / (TX * TY) == i % SLICES) {
    var a = vec4<f32>(0.0);
    var b = vec4<f32>(0.0);
    for (var s = local; s < WG; s += TX * TY) {
      a += sums(s);
      b += sums(s + WG);
    }
    put8(wg, m, tx, a, b);
  }
}

// Line is an octet of a row of w, to be multiplied by a scale, and of a token.
struct Line { w: Octet, scale: f32, xa: vec4<f32>, xb: vec4<f32> }

fn fetch(w_octet: u32, x_vec: u32, o: u32, inside: bool) -> Line {
  let s = weight_scale(w_octet + o);
  return Line(weight_octet(w_octet + o, s.y), select(0.0, s.x, inside), x[x_vec + 2u * o], x[x_vec + 2u * o + 1u]);
}

@compute @workgroup_size(WG)
fn matmul_tile(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) tid: u32) {
  let m0 = wg.y * TILE_M;
  if (m0 >= step.rows) { // the same for the whole workgroup
    return;
  }
  let all = p.k / 8u;
  let first = wg.z * p.octets;
  let end = min(first + p.octets, all);

  // What this invocation loads: octet load_c of line load_r, of w and, if there are so many lines, of x. Past the end of a part it
  // loads what is there and multiplies by 0: without branches the loads can wait while sums go on.
  let load_r = tid / LINE_OCTETS;
  let load_c = tid % LINE_OCTETS;
  let w_octet = row_of(wg.x, min(load_r, TILE_N - 1u)) * all;
  let w_more = row_of(wg.x, min(load_r + LOAD_LINES, TILE_N - 1u)) * all;
  let x_row = p.x_stride / 4u;
  let x_vec = min(m0 + min(load_r, TILE_M - 1u), step.rows - 1u) * x_row;
  let x_more = min(m0 + min(load_r + LOAD_LINES, TILE_M - 1u), step.rows - 1u) * x_row;
  let column_x = load_r / TY;
  let x0 = place(load_r % TY, 2u * load_c);
  let x1 = place(load_r % TY, 2u * load_c + 1u);
  let column_w = load_r / TX;
  let w0 = place(load_r % TX, 2u * load_c);
  let w1 = place(load_r % TX, 2u * load_c + 1u);
  var o = first + load_c;
  var next = fetch(w_octet, x_vec, min(o, all - 1u), o < end);
  var more = next;
  if (TWICE_W || TWICE_X) {
    more = fetch(w_more, x_more, min(o, all - 1u), o < end);
  }

  let local = tid % (TX * TY);
  let c0 = tid / (TX * TY) * SHARE;
  let tx = tx_of(local);
  let ty = ty_of(local);
  var a0 = vec4<f32>(0.0);
  var a1 = vec4<f32>(0.0);
  var a2 = vec4<f32>(0.0);
  var a3 = vec4<f32>(0.0);
  var a4 = vec4<f32>(0.0);
  var a5 = vec4<f32>(0.0);
  var a6 = vec4<f32>(0.0);
  var a7 = vec4<f32>(0.0);
  var b0 = vec4<f32>(0.0);
  var b1 = vec4<f32>(0.0);
  var b2 = vec4<f32>(0.0);
  var b3 = vec4<f32>(0.0);
  var b4 = vec4<f32>(0.0);
  var b5 = vec4<f32>(0.0);
  var b6 = vec4<f32>(0.0);
  var b7 = vec4<f32>(0.0);
  for (var at = first; at < end; at += LINE_OCTETS) {
    if (load_r < TILE_N) {
      ws[column_w][w0] = next.scale * next.w.a;
      ws[column_w][w1] = next.scale * next.w.b;
    }
    if (TWICE_W) { // LOAD_LINES lines further down is a multiple of 8 of them, which lie alike
      ws[column_w + LOAD_LINES / TX][w0] = more.scale * more.w.a;
      ws[column_w + LOAD_LINES / TX][w1] = more.scale * more.w.b;
    }
    if (load_r < TILE_M) {
      xs[column_x][x0] = next.xa;
      xs[column_x][x1] = next.xb;
    }
    if (TWICE_X) {
      xs[column_x + LOAD_LINES / TY][x0] = more.xa;
      xs[column_x + LOAD_LINES / TY][x1] = more.xb;
    }
    workgroupBarrier(); // the lines are complete before any invocation reads them
    o += LINE_OCTETS;
    next = fetch(w_octet, x_vec, min(o, all - 1u), o < end);
    if (TWICE_W || TWICE_X) {
      more = fetch(w_more, x_more, min(o, all - 1u), o < end);
    }
    for (var i = 0u; i < SHARE; i += 1u) {
      let at_w = place(tx, c0 + i);
      let at_x = place(ty, c0 + i);
      let lo = turn(ws[0][at_w], ws[1][at_w], ws[2][at_w], ws[3][at_w]);
      let hi = turn(ws[4][at_w], ws[5][at_w], ws[6][at_w], ws[7][at_w]);
      let v0 = xs[0][at_x];
      a0 = mac(a0, v0, lo);
      b0 = mac(b0, v0, hi);
      let v1 = xs[1][at_x];
      a1 = mac(a1, v1, lo);
      b1 = mac(b1, v1, hi);
      let v2 = xs[2][at_x];
      a2 = mac(a2, v2, lo);
      b2 = mac(b2, v2, hi);
      let v3 = xs[3][at_x];
      a3 = mac(a3, v3, lo);
      b3 = mac(b3, v3, hi);
      if (TM == 8u) {
        let v4 = xs[TM - 4u][at_x];
        a4 = mac(a4, v4, lo);
        b4 = mac(b4, v4, hi);
        let v5 = xs[TM - 3u][at_x];
        a5 = mac(a5, v5, lo);
        b5 = mac(b5, v5, hi);
        let v6 = xs[TM - 2u][at_x];
        a6 = mac(a6, v6, lo);
        b6 = mac(b6, v6, hi);
        let v7 = xs[TM - 1u][at_x];
        a7 = mac(a7, v7, lo);
        b7 = mac(b7, v7, hi);
      }
    }
    workgroupBarrier(); // all have read the lines before they are overwritten
  }
  finish(wg, tid, 0u, a0, b0);
  finish(wg, tid, 1u, a1, b1);
  finish(wg, tid, 2u, a2, b2);
  finish(wg, tid, 3u, a3, b3);
  if (TM == 8u) {
    finish(wg, tid, 4u, a4, b4);
    finish(wg, tid, 5u, a5, b5);
    finish(wg, tid, 6u, a6, b6);
    finish(wg, tid, 7u, a7, b7);
  }
}
