// A hop of graph searches, a block a query (GustANN, section 4.2.3): the links of the records that have arrived are scored by
// their codes, a thread each, sorted, merged into the query's list of candidates and only then freed of duplicates, so that no
// table of visited vectors is needed; what is expanded next is the answer.
//
// A candidate is a key of 64 bits, in the order of distances, then of ids:
//
//     (distance as an ordered integer) << 32 | id << 1 | fresh
//
// Whatever was expanded is not fresh, and so comes before its duplicate: the first of equal ones is kept, and with it what was done.
// Estimates are those of a processor, bit for bit: integer sums, then the same operations on floats in the same order.
#include "keys.h"

// No vector.
#define NO_ID 0xffffffffu

// One query's part of a launch. As `Work` in src/hops/args.rs.
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

// As `Args` in src/hops/args.rs.
struct HopArgs {
  const u8* codes;    // of all vectors, `code_bytes` each, 8 bytes to spare behind the last
  const u16* planes;  // of each byte of a code behind its factors: plane << 13 | group of 8 dimensions
  const u8* staged;   // queries that begin
  const Work* work;   // one a block
  const u32* ids;
  const u32* pivots;  // where queries begin (section 4.4): `pivot_count` ids
  u8* queries;        // of each slot, `query_bytes`: QueryHead, low bytes of all dimensions, high bytes if `fine`
  u64* lists;         // of each slot, 1 + `list_stride` keys: how many there are, and they, sorted
  u32* next;          // of each block, `width_room` ids, NO_ID behind the last
  u32 code_bytes;
  u32 factor_bytes;
  u32 plane_bytes;
  u32 query_bytes;
  u32 groups;
  u32 fine;
  u32 list_room;   // the longest list of this launch
  u32 width_room;  // the most that a query of this launch expands next
  u32 pivot_count;
  u32 list_stride;
};

// What turns the sums over a code into a distance.
struct QueryHead {
  float offset, bias, norm_factor, gain_factor;
};

// The memory that the threads of a block share.
struct Room {
  u64* list;    // list_room
  u64* merged;  // list_room + THREADS
  u64* links;   // THREADS
  u32* query;   // query_bytes
  u16* planes;  // plane_bytes
  u32* counts;  // a warp each
  u32* held;    // keys in `list`
};

DEVICE Room carve(u8* pool, const HopArgs& args) {
  Room room;
  room.list = (u64*)pool;
  room.merged = room.list + args.list_room;
  room.links = room.merged + args.list_room + THREADS;
  room.query = (u32*)(room.links + THREADS);
  room.counts = room.query + args.query_bytes / 4;
  room.held = room.counts + THREADS / 32;
  room.planes = (u16*)(room.held + 1);
  return room;
}

DEVICE u64 key_of(float distance, u32 id) {
  if (distance != distance) return NO_KEY;
  return (u64)ordered(distance) << 32 | (u64)id << 1 | 1;
}

// Factors of a code, finite for any bytes.
DEVICE float from_half(u32 bits) {
  return __fmul_rn(__uint_as_float((bits & 0x7fffu) << 13), __uint_as_float((127u + 112u) << 23));
}

DEVICE float from_float(u32 bits) {
  return (bits & 0x7f800000u) == 0x7f800000u ? 0.0f : __uint_as_float(bits);
}

// Four bits as four bytes of 0 or 1.
DEVICE u32 spread(u32 bits) {
  return (bits * 0x00204081u) & 0x01010101u;
}

// The estimated distance of the vector `id`.
DEVICE float score(const HopArgs& args, const Room& room, u32 id) {
  const u64 start = (u64)id * args.code_bytes;
  const u32* words = (const u32*)(args.codes + (start & ~3ull));
  const u32 shift = (u32)(start & 3) * 8;
  const u32* low = room.query + sizeof(QueryHead) / 4;
  const u32* high = low + 2 * args.groups;
  u32 word = words[0];
  u32 factors[2] = {0, 0};
  for (u32 i = 0; i < args.factor_bytes / 4; i++) {
    u32 after = words[i + 1];
    factors[i] = __funnelshift_r(word, after, shift);
    word = after;
  }
  words += args.factor_bytes / 4;
  int low_sum = 0, high_sum = 0;
  for (u32 i = 0; i < args.plane_bytes; i += 4) {
    u32 after = words[i / 4 + 1];
    u32 four = __funnelshift_r(word, after, shift);
    word = after;
    for (u32 j = i; j < i + 4 && j < args.plane_bytes; j++, four >>= 8) {
      u32 group = room.planes[j] & 0x1fff, weight = 1u << (room.planes[j] >> 13);
      u32 first = spread(four & 15), second = spread(four >> 4 & 15);
      int sum = dot4(low[2 * group], first, dot4(low[2 * group + 1], second, 0));
      low_sum += sum * (int)weight;
      if (args.fine) {
        sum = dot4(high[2 * group], first, dot4(high[2 * group + 1], second, 0));
        high_sum += sum * (int)weight;
      }
    }
  }
  const QueryHead* head = (const QueryHead*)room.query;
  bool narrow = args.factor_bytes == 4;
  float norm = narrow ? from_half(factors[0]) : from_float(factors[0]);
  float gain = narrow ? from_half(factors[0] >> 16) : from_float(factors[1]);
  float dot = __fadd_rn(__fadd_rn((float)low_sum, __fmul_rn(256.0f, (float)high_sum)), head->offset);
  float base = __fadd_rn(head->bias, __fmul_rn(head->norm_factor, norm));
  return __fadd_rn(base, __fmul_rn(head->gain_factor, __fmul_rn(gain, dot)));
}

// Merges the sorted links into the sorted list. A link equal to a candidate but for what was done with that goes behind it.
DEVICE void merge(const Room& room, u32 held) {
  const u32 thread = threadIdx.x;
  u64 link = room.links[thread];
  // Equal links (two records may have the same) keep their order by their own places.
  u32 before = rank(room.list, held, link == NO_KEY ? NO_KEY : link + 1);
  room.merged[thread + before] = link;
  for (u32 i = thread; i < held; i += THREADS) {
    u64 key = room.list[i];
    room.merged[i + rank(room.links, THREADS, key)] = key;
  }
}

// The first of each run of equal candidates becomes the list, as many as it holds (equation 2): ballots say how many of a warp
// come before a thread, counts how many of the warps before.
DEVICE u32 unique(const Room& room, u32 merged, u32 most) {
  const u32 thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  u32 kept = 0;
  for (u32 first = 0; first < merged && kept < most; first += THREADS) {
    u32 i = first + thread;
    u64 key = i < merged ? room.merged[i] : NO_KEY;
    bool keep = key != NO_KEY && (i == 0 || room.merged[i - 1] >> 1 != key >> 1);
    u32 ballot = __ballot_sync(ALL_LANES, keep);
    if (lane == 0) room.counts[warp] = __popc(ballot);
    __syncthreads();
    u32 before = kept + __popc(ballot & ((1u << lane) - 1));
    for (u32 w = 0; w < THREADS / 32; w++) {
      before += w < warp ? room.counts[w] : 0;
      kept += room.counts[w];
    }
    if (keep && before < most) room.list[before] = key;
    __syncthreads();
  }
  return kept < most ? kept : most;
}

// Makes candidates of a key a thread, and keeps `most`; returns how many are in the list then.
DEVICE u32 add(const Room& room, u64 key, u32 held, u32 most) {
  const u32 thread = threadIdx.x;
  key = sorted(key, room.links);
  room.links[thread] = key;
  __syncthreads();
  merge(room, held);
  __syncthreads();
  return unique(room, held + THREADS, most);
}

// The same of `count` ids, of which one in `step` counts.
DEVICE u32 take(const HopArgs& args, const Room& room, const u32* ids, u32 step, u32 count, u32 held, u32 most) {
  const u32 thread = threadIdx.x;
  for (u32 first = 0; first < count; first += THREADS) {
    u64 key = NO_KEY;
    if (first + thread < count) {
      u32 id = ids[(first + thread) * step];
      key = key_of(score(args, room, id), id);
    }
    held = add(room, key, held, most);
  }
  return held;
}

// Brings what the card has of a query into the memory of its threads: `query` is where it lies in `staged` if it begins. Returns how many
// candidates it has.
DEVICE u32 arrive(const HopArgs& args, const Room& room, u32 slot, u32 query, const u64* list) {
  const u32 thread = threadIdx.x;
  u32* own = (u32*)(args.queries + (u64)slot * args.query_bytes);
  const bool begins = query != NO_ID;
  for (u32 i = thread; i < args.query_bytes / 4; i += THREADS) {
    room.query[i] = begins ? ((const u32*)(args.staged + query))[i] : own[i];
    if (begins) own[i] = room.query[i];
  }
  for (u32 i = thread; i < args.plane_bytes; i += THREADS) room.planes[i] = args.planes[i];
  u32 held = begins ? 0 : (u32)list[0];
  for (u32 i = thread; i < held; i += THREADS) room.list[i] = list[1 + i];
  return held;
}

// The nearest fresh candidates, which are expanded from here on; by one warp.
DEVICE void choose(const Room& room, u32 held, u32 width, u32* next) {
  const u32 lane = threadIdx.x;
  u32 found = 0;
  for (u32 first = 0; first < held && found < width; first += 32) {
    u32 i = first + lane;
    bool fresh = i < held && (room.list[i] & 1);
    u32 ballot = __ballot_sync(ALL_LANES, fresh);
    u32 at = found + __popc(ballot & ((1u << lane) - 1));
    if (fresh && at < width) {
      next[at] = (u32)room.list[i] >> 1;
      room.list[i] &= ~1ull;
    }
    found += __popc(ballot);
  }
}

KERNEL(THREADS) hop(HopArgs args) {
  SHARED(pool);
  const u32 thread = threadIdx.x;
  const Work work = args.work[blockIdx.x];
  const Room room = carve(pool, args);
  u64* list = args.lists + (u64)work.slot * (1 + args.list_stride);
  u32* next = args.next + (u64)blockIdx.x * args.width_room;
  const bool begins = work.query != NO_ID;
  u32 held = arrive(args, room, work.slot, work.query, list);
  for (u32 i = thread; i < args.width_room; i += THREADS) next[i] = NO_ID;
  __syncthreads();
  // First the pivots, of which the nearest stay, then what was handed over; compiled once.
  ROLLED
  for (u32 part = begins ? 0 : 1; part < 2; part++) {
    const u32* ids = part ? args.ids + work.first : args.pivots;
    const u32 step = part ? 1 : work.step;
    const u32 count = part ? work.count : (args.pivot_count + work.step - 1) / work.step;
    held = take(args, room, ids, step, count, held, part ? work.list : work.starts);
  }
  if (thread < 32) choose(room, held, work.width, next);
  __syncthreads();
  for (u32 i = thread; i < held; i += THREADS) list[1 + i] = room.list[i];
  if (thread == 0) list[0] = held;
}

// A hop through pages that hold many vectors and link as a whole: of each link's page all vectors become candidates if the linked one is
// near enough, and what is expanded next are pages. No table says which pages were looked at: once more changes nothing, since
// duplicates are dropped, and what was pushed out of a full list stays out.

// One query's part of a launch. As `Work` in src/pages/args.rs.
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

// As `Args` in src/pages/args.rs.
struct PageArgs {
  HopArgs hop;           // of whose `work` nothing is there; `next` has `answer_words` a block
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
      if (place < args.vectors) key = key_of(score(args.hop, room, place), place);
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
  const u32 thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const PageWork work = args.work[blockIdx.x];
  const Room room = carve(pool, args.hop);
  u32* near = (u32*)(room.planes + args.hop.plane_bytes + (args.hop.plane_bytes & 1));  // THREADS
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
    held = take(args.hop, room, args.hop.pivots, 1, args.hop.pivot_count, 0, work.starts);
    if (thread < held) {
      starts[thread] = (u32)room.list[thread] >> 1;
      near[thread] = starts[thread] / args.records;
    }
    if (thread == held) near[thread] = links[0] / args.records;
    __syncthreads();
    scored = args.hop.pivot_count + (held + 1) * args.records;
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
        is_near = score(args.hop, room, place) <= limit;
      }
      u32 ballot = __ballot_sync(ALL_LANES, is_near);
      if (lane == 0) room.counts[warp] = __popc(ballot);
      __syncthreads();
      u32 at = __popc(ballot & ((1u << lane) - 1)), count = 0;
      for (u32 w = 0; w < THREADS / 32; w++) {
        at += w < warp ? room.counts[w] : 0;
        count += room.counts[w];
      }
      if (is_near) near[at] = place / args.records;
      __syncthreads();
      scored += count * args.records;
      held = look(args, room, near, count, held, work.list);
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
