// A hop of graph searches, a block a query (GustANN, section 4.2.3): the links of the records that have arrived become candidates; what
// is expanded next is the answer.
#include "slots.h"

// One query's part of a launch. As `HopKernel::add` in src/hops.rs writes it.
struct Work {
  u32 slot;      // where the card keeps the query
  u32 first;     // of its ids among all
  u32 count;     // ids to score
  u32 query;     // where the query lies in `staged`, in bytes, if it begins with this hop; NO_ID else
  u32 list;      // candidates that it keeps at most
  u32 width;     // candidates that it expands next at most
  u32 starts;    // nearest pivots that a query begins with at most
  u32 step;      // one pivot in so many is looked at
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
  // First the pivots, of which the nearest stay, then what was handed over; compiled once.
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
