// A scan of groups of codes. A block serves a query. The output is the places of the best codes.
#include "groups.h"

KERNEL(THREADS) scan(ScanArgs args) {
  SHARED(pool);
  const ScanWork work = args.work[blockIdx.x];
  const ScanRoom room = carve_scan(pool, args);
  u64* found = args.found + (u64)blockIdx.x * args.list_room;
  const u32 held = scan_groups(args, room, work);
  for (u32 i = threadIdx.x; i < args.list_room; i += THREADS) found[i] = i < held ? room.list[i] : NO_KEY;
}
