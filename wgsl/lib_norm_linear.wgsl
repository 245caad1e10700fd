// lib_norm_linear: four rows of weights times one row of activations, which may be normed, by LANES invocations. For kernels that
// have the constants WG, LANES and NORM, bind `x` and `weight` as array<vec4<f32>>, and have k in their Params. Quad comes from
// a lib_weight file.

// Found is what one invocation found: its part of four sums, and of the sum of squares of x.
struct Found {
  sum: vec4<f32>,
  square: f32,
}

var<workgroup> sums: array<vec4<f32>, WG>;
var<workgroup> squares: array<f32, WG>;

// Inputs are 32 neighbours of a row of x.
struct Inputs { a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>, e: vec4<f32>, f: vec4<f32>, g: vec4<f32>, h: vec4<f32> }

fn dot_inputs(q: Quad, v: Inputs) -> f32 {
  return (dot(q.o0.a, v.a) + dot(q.o0.b, v.b)) + (dot(q.o1.a, v.c) + dot(q.o1.b, v.d))
       + ((dot(q.o2.a, v.e) + dot(q.o2.b, v.f)) + (dot(q.o3.a, v.g) + dot(q.o3.b, v.h)));
}

fn inputs(at: u32) -> Inputs {
  return Inputs(x[at], x[at + 1u], x[at + 2u], x[at + 3u], x[at + 4u], x[at + 5u], x[at + 6u], x[at + 7u]);
}

fn square(v: Inputs) -> f32 {
  return (dot(v.a, v.a) + dot(v.b, v.b)) + (dot(v.c, v.c) + dot(v.d, v.d))
       + ((dot(v.e, v.e) + dot(v.f, v.f)) + (dot(v.g, v.g) + dot(v.h, v.h)));
}

fn weighted(v: Inputs, at: u32) -> Inputs {
  return Inputs(v.a * weight[at], v.b * weight[at + 1u], v.c * weight[at + 2u], v.d * weight[at + 3u],
                v.e * weight[at + 4u], v.f * weight[at + 5u], v.g * weight[at + 6u], v.h * weight[at + 7u]);
}

fn dot_row(row: u32, i: u32, v: Inputs) -> f32 {
  let b = row * (p.k / 32u) + i;
  let s = weight_scale(4u * b);
  return s.x * dot_inputs(weight_quad(b, s.y), v);
}

// dot_four is lane's part of the inner products of the rows with the activations that begin at x0, in vec4 elements.
fn dot_four(rows: vec4<u32>, x0: u32, lane: u32) -> Found {
  var found = Found(vec4<f32>(0.0), 0.0);
  for (var i = lane; i < p.k / 32u; i += LANES) {
    var v = inputs(x0 + 8u * i);
    if (NORM == 1u) {
      found.square += square(v);
      v = weighted(v, 8u * i);
    }
    found.sum += vec4<f32>(dot_row(rows.x, i, v), dot_row(rows.y, i, v), dot_row(rows.z, i, v), dot_row(rows.w, i, v));
  }
  return found;
}

// sum_lanes adds up what the lanes found; the result is right for lane 0 only. All invocations of the workgroup call it.
fn sum_lanes(found: Found, tid: u32, lane: u32) -> Found {
  sums[tid] = found.sum;
  squares[tid] = found.square;
  for (var n = LANES; n > 1u; ) {
    let fewer = (n + 3u) / 4u;
    workgroupBarrier(); // the sums of the round before are complete
    if (lane < fewer) {
      for (var other = lane + fewer; other < n; other += fewer) {
        sums[tid] += sums[tid - lane + other];
        squares[tid] += squares[tid - lane + other];
      }
    }
    n = fewer;
  }
  return Found(sums[tid], squares[tid]); // lane 0 wrote both itself
}
