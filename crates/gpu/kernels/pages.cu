// A hop through pages that hold many vectors and link as a whole: of each link's page all vectors become candidates if the linked one is
// near enough, and what is expanded next are pages. No table says which pages were looked at: once more changes nothing, since
// duplicates are dropped, and what was pushed out of a full list stays out.
#include "slots.h"

// One query's part of a launch. As `PageKernel::add` in src/pages/mod.rs writes it.
struct PageWork {
  u32 slot;       // where the card keeps the query
  u32 first;      // of its ids among all: where the links of each page end, then these; the entry point's place, if it begins
  u32 pages;      // whose links these are
  u32 continues;  // whether the first of them had links in the launch before
  u32 query;      // where the query lies in `staged`, in bytes, if it begins with this hop; NO_ID else
  u32 list;       // candidates that it keeps at most
  u32 width;      // pages that it opens next at most
  u32 starts;     // nearest pivots that it begins with at most, fewer than THREADS
  float slack;    // how much farther than the worst candidate a linked vector may be
  u32 unused;
};

// As `PageKernel::parameters` in src/pages/mod.rs writes it.
struct PageArgs {
  HopArgs hop;           // whose `work` is not used; `next` has `answer_words` a block
  const PageWork* work;  // one a block
  u32 records;           // vectors of a page
  u32 vectors;
  u32 answer_words;  // how many codes were scored, `width_room` pages, the pivots where it begins; NO_ID behind the last of both
  u32 unused;
};

// Makes candidates of all vectors of the `count` pages that are `near`.
DEVICE u32 look(const PageArgs& args, const Room& room, const u32* near, u32 count, u32 held, u32 most) {
  const u32 all = count * args.records;
  ROLLED
  for (u32 first = 0; first < all; first += THREADS) {
    const u32 i = first + threadIdx.x;
    u64 key = NO_KEY;
    if (i < all) {
      const u32 place = near[i / args.records] * args.records + i % args.records;
      if (place < args.vectors) key = key_of(score(args.hop.graph, room, place), place);
    }
    held = add(room, key, held, most);
  }
  return held;
}

// The distance of the worst candidate of a full list; what is farther is none.
DEVICE float threshold(const Room& room, u32 held, u32 most) {
  if (held < most) return __uint_as_float(0x7f800000u);
  u32 bits = (u32)(room.list[most - 1] >> 32);
  return __uint_as_float(bits & 0x80000000u ? bits ^ 0x80000000u : ~bits);
}

// The pages of the nearest fresh candidates, all of whose candidates are expanded from here on; by one warp.
DEVICE void choose_pages(const Room& room, u32 held, u32 records, u32 width, u32* next) {
  const u32 lane = threadIdx.x;
  u32 found = 0;
  for (u32 first = 0; first < held && found < width;) {
    bool fresh = first + lane < held && (room.list[first + lane] & 1);
    u32 ballot = __ballot_sync(ALL_LANES, fresh);
    if (ballot == 0) {
      first += 32;
      continue;
    }
    u32 page = ((u32)room.list[first + __ffs(ballot) - 1] >> 1) / records;
    if (lane == 0) next[found] = page;
    found++;
    // All have asked. Whether a candidate is fresh is looked at by the lane that marks it.
    __syncwarp(ALL_LANES);
    for (u32 i = first + lane; i < held; i += 32) {
      if (((u32)room.list[i] >> 1) / records == page) room.list[i] &= ~1ull;
    }
  }
}

KERNEL(THREADS) pages(PageArgs args) {
  SHARED(pool);
  const u32 thread = threadIdx.x;
  const PageWork work = args.work[blockIdx.x];
  const Room room = carve(pool, args.hop.graph);
  u32* near = (u32*)(room.planes + args.hop.graph.plane_bytes + (args.hop.graph.plane_bytes & 1));  // THREADS
  u64* list = args.hop.lists + (u64)work.slot * (1 + args.hop.list_stride);
  u32* answer = args.hop.next + (u64)blockIdx.x * args.answer_words;
  u32* starts = answer + 1 + args.hop.width_room;
  const u32* ends = args.hop.ids + work.first;
  const u32* links = ends + work.pages;
  u32 held = arrive(args.hop, room, work.slot, work.query, list);
  float limit = __uint_as_float((u32)(list[0] >> 32));
  for (u32 i = thread; i < args.answer_words; i += THREADS) answer[i] = NO_ID;
  __syncthreads();
  u32 scored = 0;
  if (work.query != NO_ID) {
    // The pages of the nearest pivots and of the entry point, however far they are.
    held = take(args.hop.graph, room, {args.hop.graph.pivots, 1, 0}, args.hop.graph.pivot_count, 0, work.starts);
    if (thread < held) {
      starts[thread] = (u32)room.list[thread] >> 1;
      near[thread] = starts[thread] / args.records;
    }
    if (thread == held) near[thread] = links[0] / args.records;
    __syncthreads();
    scored = args.hop.graph.pivot_count + (held + 1) * args.records;
    held = look(args, room, near, held + 1, 0, work.list);
  }
  for (u32 page = 0, first = 0; page < work.pages; page++) {
    // Near enough is what all links before this page's have left in the list.
    if (page > 0 || !work.continues) limit = __fadd_rn(threshold(room, held, work.list), work.slack);
    const u32 end = ends[page];
    scored += end - first;
    for (; first < end; first = first + THREADS < end ? first + THREADS : end) {
      u32 place = 0;
      bool is_near = false;
      if (first + thread < end) {
        place = links[first + thread];
        is_near = score(args.hop.graph, room, place) <= limit;
      }
      const Votes votes = count_votes(is_near, room.counts);
      if (is_near) near[votes.before] = place / args.records;
      __syncthreads();
      scored += votes.all * args.records;
      held = look(args, room, near, votes.all, held, work.list);
    }
  }
  if (thread < 32) choose_pages(room, held, args.records, work.width, answer + 1);
  __syncthreads();
  for (u32 i = thread; i < held; i += THREADS) list[1 + i] = room.list[i];
  if (thread == 0) {
    list[0] = (u64)__float_as_uint(limit) << 32 | held;
    answer[0] = scored;
  }
}
