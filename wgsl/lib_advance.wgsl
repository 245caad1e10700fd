// lib_advance: what a chosen token makes of its row, so that the next step of a burst can begin without the host. For kernels
// that bind states, stops, block_tables, tokens, ring and counts as advance does, with max_blocks, ring_rows and vocab in Params,
// and have the constant COUNTS.

const SLOTS: u32 = 64u;             // of the ring
const BLOCK: u32 = 16u;             // tokens per block
const NO_SLOT: u32 = 0xFFFFFFFFu;
const NO_TOKEN: u32 = 0xFFFFFFFDu;  // the row had ended; what is above are codes of rows for which nothing was chosen
const SEEN: u32 = 0x80000000u;      // of counts: in prompt or output

// advance_row takes id, or a code, as what was chosen for row m. One invocation calls it for a row.
fn advance_row(m: u32, id: u32) {
  let state = states[m];
  let at = state.x % SLOTS * p.ring_rows + m;
  if (state.y == 0u) {
    ring[at] = NO_TOKEN;
    states[m] = vec4<u32>(state.x + 1u, state.yzw);
    return;
  }
  ring[at] = id;
  var left = 0u; // a row without a choice stays where it is, and its logits are computed again
  if (id < NO_TOKEN) {
    if (COUNTS == 1u && (state.w & 2u) == 2u) {
      let place = (state.w >> 8u) * p.vocab + id;
      counts[place] = (counts[place] | SEEN) + 1u;
    }
    let a = stops[2u * m];
    let b = stops[2u * m + 1u];
    let n = state.z;
    let stop = (n > 0u && id == a.x) || (n > 1u && id == a.y) || (n > 2u && id == a.z) || (n > 3u && id == a.w) ||
               (n > 4u && id == b.x) || (n > 5u && id == b.y) || (n > 6u && id == b.z) || (n > 7u && id == b.w);
    left = select(state.y - 1u, 0u, stop);
    let token = tokens[m];
    if (left == 0u) {
      tokens[m] = vec4<u32>(token.xy, NO_SLOT, token.w);
    } else {
      let position = token.y + 1u;
      let block = position / BLOCK;
      var slot = NO_SLOT;
      if (block < p.max_blocks) {
        slot = block_tables[token.w * p.max_blocks + block] * BLOCK + position % BLOCK;
      }
      tokens[m] = vec4<u32>(id, position, slot, token.w);
    }
  }
  states[m] = vec4<u32>(state.x + 1u, left, state.zw);
}
