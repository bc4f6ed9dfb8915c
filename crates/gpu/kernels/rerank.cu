// A scan of groups of codes whose vectors are on the card, too. A block serves a query, and its warps compute
// the exact distances of the best codes' vectors. The output is the nearest of these vectors.
#include "groups.h"

// Argument of the kernel. `ScanKernel::parameters` in src/scans.rs writes it.
struct RerankArgs {
  // Its `found` has 1 + `best_room` words for each block: the number of ranked codes, then keys, NO_KEY after
  // the last.
  ScanArgs scan;
  const u8* vectors;  // vectors by place
  const u32* ids;     // their ids
  Exact exact;
  u32 best_room;      // maximum number of results of a query of this launch
  u32 unused;
};

KERNEL(THREADS) rerank(RerankArgs args) {
  SHARED(pool);
  const u32 thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const ScanArgs& scan = args.scan;
  const ScanWork work = scan.work[blockIdx.x];
  u64* best = (u64*)pool;
  const ScanRoom room = carve_scan(pool + 8 * args.best_room, scan);
  const u32 held = scan_groups(scan, room, work);
  // After the query's tables: the number of results, and the query's vector.
  const u32* query = (const u32*)(scan.staged + work.query + scan.query_bytes);
  const u32 wanted = query[0];
  u32 kept = 0;
  for (u32 first = 0; first < held; first += THREADS) {
    u64 key = NO_KEY;
    for (u32 i = 0; i < 32; i++) {
      const u32 at = first + 32 * warp + i;
      if (at >= held) break;
      const u32 place = (u32)room.list[at];
      const float distance = distance_of(args.exact, query + 1, args.vectors, place);
      if (lane == i) key = answer_key(distance, args.ids[place]);
    }
    kept = keep_best(key, best, room.merged, room.sorting, kept, wanted);
  }
  u64* found = scan.found + (u64)blockIdx.x * (1 + args.best_room);
  if (thread == 0) found[0] = held;
  for (u32 i = thread; i < args.best_room; i += THREADS) found[1 + i] = i < kept ? best[i] : NO_KEY;
}
