// Queries that stay on a card from hop to hop.
#pragma once
#include "graph.h"

struct Work;

// As `HopGraph::append_args` in src/hops.rs writes it.
struct HopArgs {
  Navigation graph;
  const u8* staged;  // queries that begin
  const Work* work;  // one a block
  const u32* ids;
  u8* queries;       // of each slot, `query_bytes`
  u64* lists;        // of each slot, 1 + `list_stride` keys: how many there are, and they, sorted
  u32* next;         // of each block, `width_room` ids, NO_ID behind the last
  u32 width_room;    // the most that a query of this launch expands next
  u32 list_stride;
};

// Brings what the card has of a query into the memory of its threads: `query` is where it lies in `staged` if it begins. Returns how many
// candidates it has.
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
