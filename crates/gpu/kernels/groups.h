// Parts of scans of groups of codes. Each thread scores a code by the query's tables. Keys that may be among
// the best wait in a buffer, until there are enough of them to sort and merge them into the list of the best.
// The list does not depend on the order of the codes.
//
// A key is (distance as an ordered integer) << 32 | place. Estimated distances equal a processor's bit for
// bit: they are integer sums, followed by the same operations on floats in the same order.
#pragma once
#include "exact.h"

// Number of codes in a block of codes.
#define LANES 32
// Length of the buffer of waiting keys: the keys of two rounds.
#define WAITING (2 * THREADS)

// Request of a query. `ScanKernel::add` in src/scans.rs writes it.
struct ScanWork {
  u32 query;   // offset of its tables in `staged`, in bytes
  u32 first;   // index of its first group in `groups`
  u32 count;   // number of its groups
  u32 list;    // number of best codes to find, at least one
};

// A group to scan. `ScanKernel::add` in src/scans.rs writes it.
struct ScanGroup {
  u32 number;      // number of the group
  u32 held;        // number of its codes
  float distance;  // distance of the query to its centroid
};

// Argument of the kernel. `ScanKernel::parameters` in src/scans.rs writes it.
struct ScanArgs {
  const u8* codes;          // codes of all groups, `group_bytes` each
  // Queries, `query_bytes` each: ScanHead, then for each word 2 x 64 bytes of tables, then for each word 2 x
  // 4 weights.
  const u8* staged;
  const ScanWork* work;     // one for each block
  const ScanGroup* groups;
  u64* found;               // output: `list_room` keys for each block, NO_KEY after the last
  u32 group_bytes;
  u32 block_bytes;
  u32 plane_bytes;
  u32 factor_bytes;
  u32 group_vectors;
  u32 query_bytes;
  u32 list_room;  // length of the longest list of this launch
  u32 unused;
};

// Numbers that convert a sum to a distance.
struct ScanHead {
  float mean_term, norm_unit, offset, scale;
};

// Shared memory of a block. The comments are the lengths.
struct ScanRoom {
  u64* list;     // list_room
  u64* merged;   // list_room + THREADS
  u64* sorting;  // THREADS
  u64* waiting;  // WAITING
  u32* counts;   // one for each warp
  u8* query;     // query_bytes
};

DEVICE ScanRoom carve_scan(u8* pool, const ScanArgs& args) {
  ScanRoom room;
  room.list = (u64*)pool;
  room.merged = room.list + args.list_room;
  room.sorting = room.merged + args.list_room + THREADS;
  room.waiting = room.sorting + THREADS;
  room.counts = (u32*)(room.waiting + WAITING);
  room.query = (u8*)(room.counts + THREADS / 32);
  return room;
}

// Returns the key of code `number` of a group; NO_KEY if its distance is infinite or not a number.
DEVICE u64 scan_key(const ScanArgs& args, const ScanRoom& room, const ScanGroup& group, u32 number) {
  const u32 lane = number % LANES;
  const u8* block =
      args.codes + (u64)group.number * args.group_bytes + (u64)(number / LANES) * args.block_bytes;
  const u8* planes = block + LANES * args.factor_bytes;
  const u32 words = (args.plane_bytes + 3) / 4;
  const u8* tables = room.query + sizeof(ScanHead);
  const u8* weights = tables + 128 * words;
  u32 sum = 0;
  for (u32 w = 0; w < words; w++) {
    const u32 left = args.plane_bytes - 4 * w, width = left < 4 ? left : 4;
    u32 code = 0;
    if (width == 4) {
      code = *(const u32*)(planes + LANES * 4 * w + 4 * lane);
    } else {
      for (u32 i = 0; i < width; i++) code |= (u32)planes[LANES * 4 * w + width * lane + i] << 8 * i;
    }
    for (u32 i = 0; i < width; i++) {
      u32 low = tables[128 * w + 16 * i + (code >> 8 * i & 15)];
      u32 high = tables[128 * w + 64 + 16 * i + (code >> (8 * i + 4) & 15)];
      sum += low * weights[8 * w + i] + high * weights[8 * w + 4 + i];
    }
  }
  float norm, gain;
  if (args.factor_bytes == 4) {
    norm = half_float(((const u16*)block)[lane]);
    gain = half_float(((const u16*)block)[LANES + lane]);
  } else {
    norm = ((const float*)block)[lane];
    gain = ((const float*)block)[LANES + lane];
  }
  const ScanHead* head = (const ScanHead*)room.query;
  float base = __fadd_rn(__fadd_rn(group.distance, head->mean_term), __fmul_rn(head->norm_unit, norm));
  float dot = __fadd_rn(head->offset, __fmul_rn(head->scale, __uint2float_rn(sum)));
  float distance = __fadd_rn(base, __fmul_rn(gain, dot));
  const float infinite = __uint_as_float(0x7f800000u);
  if (!(distance < infinite)) return NO_KEY;
  return (u64)ordered(distance) << 32 | (group.number * args.group_vectors + number);
}

// Merges up to THREADS of the `waiting` keys into the list of `held` keys. Returns the new length of the
// list.
DEVICE u32 take_waiting(const ScanRoom& room, u32 held, u32 waiting, u32 most) {
  const u32 thread = threadIdx.x;
  const u64 key = thread < waiting ? room.waiting[thread] : NO_KEY;
  // The other keys move to the front.
  const u64 left = THREADS + thread < waiting ? room.waiting[THREADS + thread] : NO_KEY;
  held = keep_best(key, room.list, room.merged, room.sorting, held, most);
  room.waiting[thread] = left;
  __syncthreads();
  return held;
}

// Scans the groups of a query, and writes the keys of its best codes to `room.list`. Returns their number.
DEVICE u32 scan_groups(const ScanArgs& args, const ScanRoom& room, const ScanWork& work) {
  const u32 thread = threadIdx.x;
  for (u32 i = thread; i < args.query_bytes / 4; i += THREADS) {
    ((u32*)room.query)[i] = ((const u32*)(args.staged + work.query))[i];
  }
  __syncthreads();
  u32 held = 0, waiting = 0;
  for (u32 g = 0; g < work.count; g++) {
    const ScanGroup group = args.groups[work.first + g];
    for (u32 first = 0; first < group.held; first += THREADS) {
      const u32 number = first + thread;
      u64 key = number < group.held ? scan_key(args, room, group, number) : NO_KEY;
      u64 worst = held < work.list ? NO_KEY : room.list[work.list - 1];
      bool keep = key < worst;
      const Votes kept = count_votes(keep, room.counts);
      if (keep) room.waiting[waiting + kept.before] = key;
      waiting += kept.all;
      __syncthreads();
      if (waiting >= THREADS) {
        held = take_waiting(room, held, waiting, work.list);
        waiting -= THREADS;
      }
    }
  }
  if (waiting > 0) held = take_waiting(room, held, waiting, work.list);
  return held;
}
