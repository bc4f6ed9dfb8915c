// A search of a graph that is on the card as a whole, codes, links and vectors, a block a query: as hops are, but that nobody has to be
// asked for records.
#include "exact.h"
#include "graph.h"

// Vectors that a query expands at a time at most.
#define MOST_WIDTH 16

// One query's part of a launch. As `WalkKernel::add` in src/walks.rs writes it.
struct WalkWork {
  u32 query;   // where it lies in `staged`, in bytes; its vector follows
  u32 list;    // candidates that it keeps at most
  u32 width;   // candidates that it expands at a time at most
  u32 starts;  // nearest pivots that it begins with at most
  u32 step;    // one pivot in so many is looked at
  u32 wanted;  // answers
};

// As `WalkKernel::parameters` in src/walks.rs writes it.
struct WalkArgs {
  Navigation graph;      // behind the pivots, and not one of them, is where every query begins
  const u8* staged;
  const WalkWork* work;  // one a block
  const u8* vectors;     // by place
  const u32* links;      // of each vector `degree` places, NO_ID behind the last
  const u32* ids;        // of the vectors
  u64* found;            // of each block 2 + `best_room`: hops << 32 | expanded, scored, the answers, NO_KEY behind them
  Exact exact;
  u32 degree;
  u32 best_room;         // the most answers of a query of this launch, as many as its longest list at most
};

KERNEL(THREADS) walk(WalkArgs args) {
  SHARED(pool);
  const u32 thread = threadIdx.x, warp = thread >> 5;
  const Navigation& graph = args.graph;
  const WalkWork work = args.work[blockIdx.x];
  u64* best = (u64*)pool;
  u32* next = (u32*)(best + args.best_room);
  const Room room = carve((u8*)(next + MOST_WIDTH), graph);
  const u32* own = (const u32*)(args.staged + work.query);
  const u32* query = own + graph.query_bytes / 4;
  for (u32 i = thread; i < graph.query_bytes / 4; i += THREADS) room.query[i] = own[i];
  for (u32 i = thread; i < graph.plane_bytes; i += THREADS) room.planes[i] = graph.planes[i];
  __syncthreads();
  // First the pivots, of which the nearest stay, then where every query begins, then what they link to.
  Ids ids = {graph.pivots, work.step, 0};
  u32 count = pivots_of(graph, work.step), most = work.starts;
  u32 held = 0, kept = 0, hops = 0, expanded = 0, scored = 0;
  ROLLED
  for (u32 round = 0;; round++) {
    held = take(graph, room, ids, count, held, most);
    scored += count;
    if (round == 0) {
      ids = {graph.pivots + graph.pivot_count, 1, 0};
      count = 1;
      most = work.list;
      continue;
    }
    if (thread < 32) {
      if (thread < MOST_WIDTH) next[thread] = NO_ID;
      __syncwarp(ALL_LANES);
      choose(room, held, work.width, next);
    }
    __syncthreads();
    u32 width = 0;
    while (width < MOST_WIDTH && next[width] != NO_ID) width++;
    if (width == 0) break;
    for (u32 i = warp; i < width; i += THREADS / 32) {
      const float distance = distance_of(args.exact, query, args.vectors, next[i]);
      if ((thread & 31) == 0) room.links[i] = answer_key(distance, args.ids[next[i]]);
    }
    __syncthreads();
    const u64 key = thread < width ? room.links[thread] : NO_KEY;
    kept = keep_best(key, best, room.merged, room.links, kept, work.wanted);
    hops++;
    expanded += width;
    ids = {args.links, args.degree, next};
    count = width * args.degree;
  }
  u64* found = args.found + (u64)blockIdx.x * (2 + args.best_room);
  if (thread == 0) {
    found[0] = (u64)hops << 32 | expanded;
    found[1] = scored;
  }
  for (u32 i = thread; i < args.best_room; i += THREADS) found[2 + i] = i < kept ? best[i] : NO_KEY;
}
