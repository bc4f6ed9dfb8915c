// A hop through pages that hold many vectors and share their links. If a linked vector is near enough, all
// vectors of its page become candidates. The output is the pages to read next. There is no table of scored
// pages: if a page is scored again, duplicates are removed, and candidates that were pushed out of a full
// list stay out.
#include "slots.h"

// Request of a query. `PageKernel::add` in src/pages/mod.rs writes it.
struct PageWork {
  u32 slot;       // number of its slot
  // Index in `ids` of the ends of its pages' links, followed by the links; or of the entry point's place, if
  // the query begins.
  u32 first;
  u32 pages;      // number of pages with links
  u32 continues;  // 1 if the first page had links in the previous request
  u32 query;      // offset of the query in `staged`, in bytes, if it begins with this hop; otherwise NO_ID
  u32 list;       // maximum number of candidates
  u32 width;      // maximum number of pages to read next
  u32 starts;     // maximum number of pivots at which it begins, less than THREADS
  float slack;    // how much farther than the worst candidate a linked vector may be
  u32 unused;
};

// Argument of the kernel. `PageKernel::parameters` in src/pages/mod.rs writes it.
struct PageArgs {
  HopArgs hop;           // its `work` is not used, and `next` has `answer_words` words for each block
  const PageWork* work;  // one for each block
  u32 records;           // number of vectors of a page
  u32 vectors;
  // Words of an output: the number of scored codes, `width_room` pages, and the pivots of a query that
  // begins. NO_ID follows the last page and the last pivot.
  u32 answer_words;
  u32 unused;
};

// Adds all vectors of the `count` pages in `near` to the candidates.
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

// Returns the distance of the worst candidate of a full list, or infinity. A vector that is farther away does
// not become a candidate.
DEVICE float threshold(const Room& room, u32 held, u32 most) {
  if (held < most) return __uint_as_float(0x7f800000u);
  u32 bits = (u32)(room.list[most - 1] >> 32);
  return __uint_as_float(bits & 0x80000000u ? bits ^ 0x80000000u : ~bits);
}

// Writes the pages of the nearest fresh candidates, up to `width`, to `next`, and marks all candidates of
// these pages as expanded. One warp runs this.
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
    // All lanes have read the page. Later, each candidate is read by the lane that marks it.
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
    // All vectors of the pages of the nearest pivots and of the entry point become candidates.
    held = take(args.hop.graph, room, {args.hop.graph.pivots, 1, 0}, args.hop.graph.pivot_count, 0,
                work.starts);
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
    // The limit of a page depends on the list after all links of the previous pages.
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
