// Hops of queries that stay on a card from hop to hop.
#pragma once
#include "graph.h"

struct Work;

// Argument of the kernels. `HopGraph::append_args` in src/hops.rs writes it.
struct HopArgs {
  Navigation graph;
  const u8* staged;  // queries that begin
  const Work* work;  // one for each block
  const u32* ids;
  u8* queries;       // `query_bytes` for each slot
  u64* lists;        // 1 + `list_stride` words for each slot: the number of keys, then the sorted keys
  u32* next;         // output: `width_room` ids for each block, NO_ID after the last
  u32 width_room;    // maximum number of ids that a query of this launch expands next
  u32 list_stride;
};

// Copies a query and its candidates to shared memory. A query that begins is at byte `query` of `staged`, and
// is stored in its slot; for others, `query` is NO_ID. Returns the number of candidates.
DEVICE u32 arrive(const HopArgs& args, const Room& room, u32 slot, u32 query, const u64* list) {
  const u32 thread = threadIdx.x;
  const Navigation& graph = args.graph;
  u32* own = (u32*)(args.queries + (u64)slot * graph.query_bytes);
  const bool begins = query != NO_ID;
  for (u32 i = thread; i < graph.query_bytes / 4; i += THREADS) {
    room.query[i] = begins ? ((const u32*)(args.staged + query))[i] : own[i];
    if (begins) own[i] = room.query[i];
  }
  for (u32 i = thread; i < graph.plane_bytes; i += THREADS) room.planes[i] = graph.planes[i];
  u32 held = begins ? 0 : (u32)list[0];
  for (u32 i = thread; i < held; i += THREADS) room.list[i] = list[1 + i];
  return held;
}
