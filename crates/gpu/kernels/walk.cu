// A search of a graph whose codes, links and vectors are all on the card. A block serves a query. Its hops
// are as in `hop.cu`, but links and vectors are in the card's memory.
#include "exact.h"
#include "graph.h"

// Maximum number of vectors that a query expands at a time.
#define MOST_WIDTH 16

// Request of a query. `WalkKernel::add` in src/walks.rs writes it.
struct WalkWork {
  u32 query;   // offset of the query in `staged`, in bytes; its vector follows
  u32 list;    // maximum number of candidates
  u32 width;   // maximum number of candidates to expand at a time
  u32 starts;  // maximum number of pivots at which it begins
  u32 step;    // one pivot in this many is scored
  u32 wanted;  // number of results
};

// Argument of the kernel. `WalkKernel::parameters` in src/walks.rs writes it.
struct WalkArgs {
  Navigation graph;
  const u8* staged;      // queries
  const WalkWork* work;  // one for each block
  const u8* vectors;     // vectors by place
  const u32* links;      // `degree` places for each vector, NO_ID after the last
  const u32* ids;        // ids of the vectors
  // Output: 2 + `best_room` words for each block: hops << 32 | expanded, scored, then keys, NO_KEY after the
  // last.
  u64* found;
  Exact exact;
  u32 degree;
  u32 best_room;         // maximum number of results of a query of this launch, at most `list_room`
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
  // The pivots become candidates, of which the nearest are kept; then the entry point; then the links of
  // expanded vectors.
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
