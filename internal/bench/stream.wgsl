// stream: reads a buffer once and all but throws it away, to find how fast memory can be read.
//
// Each of the invocations reads 16 elements that lie a whole stride of all invocations apart, so that neighbours read neighbours and
// four loads are under way at a time. Without the store, which data of zeros never reaches, a compiler would leave the loads out.
//
// Shapes   data  [16 * invocations] vec4<u32>  read
//          seen  [1] u32                       write
// Grid     (x, y) workgroups of 256
// Needs    nothing beyond the portable subset.

@group(0) @binding(0) var<storage, read> data: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> seen: array<u32>;

@compute @workgroup_size(256)
fn stream(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let stride = groups.x * groups.y * 256u;
    var at = (group.y * groups.x + group.x) * 256u + lane;
    var sum = vec4<u32>(0u, 0u, 0u, 0u);
    for (var i = 0u; i < 4u; i++) {
        let a = data[at];
        let b = data[at + stride];
        let c = data[at + 2u * stride];
        let d = data[at + 3u * stride];
        sum = sum | (a | b) | (c | d);
        at = at + 4u * stride;
    }
    if ((sum.x | sum.y | sum.z | sum.w) != 0u) {
        seen[0] = 1u;
    }
}
