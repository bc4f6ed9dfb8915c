// A hop of graph searches (GustANN, section 4.2.3). A block serves a query: the links of the records that
// have arrived become candidates, and the output is the candidates to expand next.
#include "slots.h"

// Request of a query. `HopKernel::add` in src/hops.rs writes it.
struct Work {
  u32 slot;      // number of its slot
  u32 first;     // index of its first id in `ids`
  u32 count;     // number of ids to score
  u32 query;     // offset of the query in `staged`, in bytes, if it begins with this hop; otherwise NO_ID
  u32 list;      // maximum number of candidates
  u32 width;     // maximum number of candidates to expand next
  u32 starts;    // maximum number of pivots at which a query begins
  u32 step;      // one pivot in this many is scored
};

KERNEL(THREADS) hop(HopArgs args) {
  SHARED(pool);
  const u32 thread = threadIdx.x;
  const Navigation& graph = args.graph;
  const Work work = args.work[blockIdx.x];
  const Room room = carve(pool, graph);
  u64* list = args.lists + (u64)work.slot * (1 + args.list_stride);
  u32* next = args.next + (u64)blockIdx.x * args.width_room;
  const bool begins = work.query != NO_ID;
  u32 held = arrive(args, room, work.slot, work.query, list);
  for (u32 i = thread; i < args.width_room; i += THREADS) next[i] = NO_ID;
  __syncthreads();
  // If the query begins, first the pivots become candidates, of which the nearest are kept. Then the
  // submitted ids.
  ROLLED
  for (u32 part = begins ? 0 : 1; part < 2; part++) {
    const Ids ids = {part ? args.ids + work.first : graph.pivots, part ? 1 : work.step, 0};
    const u32 count = part ? work.count : pivots_of(graph, work.step);
    held = take(graph, room, ids, count, held, part ? work.list : work.starts);
  }
  if (thread < 32) choose(room, held, work.width, next);
  __syncthreads();
  for (u32 i = thread; i < held; i += THREADS) list[1 + i] = room.list[i];
  if (thread == 0) list[0] = held;
}
