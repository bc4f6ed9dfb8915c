// Parts of graph searches on a card (GustANN, section 4.2.3). Each thread scores the code of a link. The
// links are sorted and merged into the candidate list of the query, and then duplicates are removed. So there
// is no table of visited vectors.
//
// A candidate is a key of 64 bits, in the order of distances, then of ids:
//
//     (distance as an ordered integer) << 32 | id << 1 | fresh
//
// An expanded candidate is not fresh, so its key precedes that of a fresh duplicate, and the first of equal
// candidates is kept. Estimated distances equal a processor's bit for bit: they are integer sums, followed by
// the same operations on floats in the same order.
#pragma once
#include "keys.h"

// Marks the absence of a vector.
#define NO_ID 0xffffffffu

// Data that all hops and walks share. `NavigationAddresses::append_fields` in src/graph.rs writes it.
struct Navigation {
  const u8* codes;    // codes of all vectors, `code_bytes` each, and 8 spare bytes
  const u16* planes;  // for each byte of a code after its factors: plane << 13 | group of 8 dimensions
  const u32* pivots;  // ids at which queries begin (section 4.4), and the entry point after them
  u32 code_bytes;
  u32 factor_bytes;
  u32 plane_bytes;
  u32 query_bytes;    // of QueryHead, the low bytes of all dimensions, and the high bytes if `fine`
  u32 groups;
  u32 fine;
  u32 pivot_count;
  u32 list_room;      // length of the longest list of this launch
};

// Numbers that convert the sums over a code to a distance.
struct QueryHead {
  float offset, bias, norm_factor, gain_factor;
};

// Shared memory of a block. The comments are the lengths.
struct Room {
  u64* list;    // list_room
  u64* merged;  // list_room + THREADS
  u64* links;   // THREADS
  u32* query;   // query_bytes
  u16* planes;  // plane_bytes
  u32* counts;  // one for each warp
  u32* held;    // 1, unused
};

DEVICE Room carve(u8* pool, const Navigation& args) {
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

// Factors of a code. The results are finite for any bytes.
DEVICE float from_half(u32 bits) {
  return __fmul_rn(__uint_as_float((bits & 0x7fffu) << 13), __uint_as_float((127u + 112u) << 23));
}

DEVICE float from_float(u32 bits) {
  return (bits & 0x7f800000u) == 0x7f800000u ? 0.0f : __uint_as_float(bits);
}

// Converts four bits to four bytes of 0 or 1.
DEVICE u32 spread(u32 bits) {
  return (bits * 0x00204081u) & 0x01010101u;
}

// Returns the estimated distance of the vector `id`.
DEVICE float score(const Navigation& args, const Room& room, u32 id) {
  const u64 start = (u64)id * args.code_bytes;
  const u32* words = (const u32*)(args.codes + (start & ~3ull));
  const u32 shift = (u32)(start & 3) * 8;
  const u32* low = room.query + sizeof(QueryHead) / 4;
  const u32* high = low + 2 * args.groups;
  u32 after = words[1], second = 0;
  const u32 first = __funnelshift_r(words[0], after, shift);
  u32 word = after;
  if (args.factor_bytes == 8) {
    after = words[2];
    second = __funnelshift_r(word, after, shift);
    word = after;
  }
  words += args.factor_bytes / 4;
  int low_sum = 0, high_sum = 0;
  for (u32 i = 0; i < args.plane_bytes; i += 4) {
    after = words[i / 4 + 1];
    u32 four = __funnelshift_r(word, after, shift);
    word = after;
    for (u32 j = i; j < i + 4 && j < args.plane_bytes; j++, four >>= 8) {
      u32 group = room.planes[j] & 0x1fff, weight = 1u << (room.planes[j] >> 13);
      u32 even = spread(four & 15), odd = spread(four >> 4 & 15);
      int sum = dot4(low[2 * group], even, dot4(low[2 * group + 1], odd, 0));
      low_sum += sum * (int)weight;
      if (args.fine) {
        sum = dot4(high[2 * group], even, dot4(high[2 * group + 1], odd, 0));
        high_sum += sum * (int)weight;
      }
    }
  }
  const QueryHead* head = (const QueryHead*)room.query;
  bool narrow = args.factor_bytes == 4;
  float norm = narrow ? from_half(first) : from_float(first);
  float gain = narrow ? from_half(first >> 16) : from_float(second);
  float dot = __fadd_rn(__fadd_rn((float)low_sum, __fmul_rn(256.0f, (float)high_sum)), head->offset);
  float base = __fadd_rn(head->bias, __fmul_rn(head->norm_factor, norm));
  return __fadd_rn(base, __fmul_rn(head->gain_factor, __fmul_rn(gain, dot)));
}

// Merges the sorted links into the sorted list. A link comes after an equal candidate, fresh or not.
DEVICE void merge(const Room& room, u32 held) {
  const u32 thread = threadIdx.x;
  u64 link = room.links[thread];
  // Equal links, of two records, keep their order, because each has its own place in `links`.
  u32 before = rank(room.list, held, link == NO_KEY ? NO_KEY : link + 1);
  room.merged[thread + before] = link;
  for (u32 i = thread; i < held; i += THREADS) {
    u64 key = room.list[i];
    room.merged[i + rank(room.links, THREADS, key)] = key;
  }
}

// Writes the first of each run of equal candidates to the list, up to `most` (equation 2). Returns their
// number.
DEVICE u32 unique(const Room& room, u32 merged, u32 most) {
  u32 kept = 0;
  for (u32 first = 0; first < merged && kept < most; first += THREADS) {
    u32 i = first + threadIdx.x;
    u64 key = i < merged ? room.merged[i] : NO_KEY;
    bool keep = key != NO_KEY && (i == 0 || room.merged[i - 1] >> 1 != key >> 1);
    const Votes kept_here = count_votes(keep, room.counts);
    const u32 at = kept + kept_here.before;
    if (keep && at < most) room.list[at] = key;
    kept += kept_here.all;
    __syncthreads();
  }
  return kept < most ? kept : most;
}

// A sequence of ids: one in `step` of `all`; or, if `of` has vectors, the links of these vectors, `step`
// each.
struct Ids {
  const u32* all;
  u32 step;
  const u32* of;
};

DEVICE u32 id_at(const Ids& ids, u32 i) {
  return ids.of ? ids.all[(u64)ids.of[i / ids.step] * ids.step + i % ids.step] : ids.all[(u64)i * ids.step];
}

// Adds one key of each thread to the candidates, and keeps up to `most` of them. Returns the new length of
// the list.
DEVICE u32 add(const Room& room, u64 key, u32 held, u32 most) {
  const u32 thread = threadIdx.x;
  key = sorted(key, room.links);
  room.links[thread] = key;
  __syncthreads();
  merge(room, held);
  __syncthreads();
  return unique(room, held + THREADS, most);
}

// Adds `count` ids to the candidates.
DEVICE u32 take(const Navigation& args, const Room& room, const Ids& ids, u32 count, u32 held, u32 most) {
  const u32 thread = threadIdx.x;
  for (u32 first = 0; first < count; first += THREADS) {
    u64 key = NO_KEY;
    if (first + thread < count) {
      u32 id = id_at(ids, first + thread);
      if (id != NO_ID) key = key_of(score(args, room, id), id);
    }
    held = add(room, key, held, most);
  }
  return held;
}

// Writes the nearest fresh candidates, up to `width`, to `next`, and marks them as expanded. One warp runs
// this.
DEVICE void choose(const Room& room, u32 held, u32 width, u32* next) {
  const u32 lane = threadIdx.x;
  u32 found = 0;
  for (u32 first = 0; first < held && found < width; first += 32) {
    u32 i = first + lane;
    bool fresh = i < held && (room.list[i] & 1);
    u32 ballot = __ballot_sync(ALL_LANES, fresh);
    u32 at = found + lanes_before(ballot);
    if (fresh && at < width) {
      next[at] = (u32)room.list[i] >> 1;
      room.list[i] &= ~1ull;
    }
    found += __popc(ballot);
  }
}

// Returns the number of pivots if one in `step` is used.
DEVICE u32 pivots_of(const Navigation& args, u32 step) {
  return (args.pivot_count + step - 1) / step;
}
