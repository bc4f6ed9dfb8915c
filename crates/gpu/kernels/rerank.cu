// A scan of groups of codes whose vectors are on the card as well, a block a query: the vectors of the best codes are compared exactly, a
// warp each, and the nearest of them are the answer.
#include "groups.h"

// As `ScanKernel::parameters` in src/scans.rs writes it.
struct RerankArgs {
  ScanArgs scan;      // `found` has of each block 1 + `best_room` keys: how many codes were ranked, the answers, NO_KEY behind them
  const u8* vectors;  // by place
  const u32* ids;     // of the vectors
  Exact exact;
  u32 best_room;      // the most answers of a query of this launch
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
  // Behind the query's tables: how many answers it wants, and its vector.
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
