// Sorted keys of 64 bits. The upper half is a distance as an integer of the same order.
#pragma once
#include "device.h"

// Threads of a block, and number of keys that they sort at a time. A power of two.
#define THREADS 128
#define NO_KEY 0xffffffffffffffffull

// Converts a distance to an integer of the same order.
DEVICE u32 ordered(float distance) {
  // Adding zero converts -0.0 to 0.0, so that both have the same key.
  u32 bits = __float_as_uint(__fadd_rn(distance, 0.0f));
  return bits ^ ((bits & 0x80000000u) ? 0xffffffffu : 0x80000000u);
}

// Sorts one key of each thread (bitonic sort). Within a warp, keys are exchanged by shuffles.
DEVICE u64 sorted(u64 key, u64* exchange) {
  const u32 thread = threadIdx.x;
  for (u32 size = 2; size <= THREADS; size <<= 1) {
    for (u32 stride = size >> 1; stride > 0; stride >>= 1) {
      u64 other;
      if (stride < 32) {
        other = __shfl_xor_sync(ALL_LANES, key, stride);
      } else {
        exchange[thread] = key;
        __syncthreads();
        other = exchange[thread ^ stride];
        __syncthreads();
      }
      bool smaller = ((thread & size) == 0) == ((thread & stride) == 0);
      key = (key < other) == smaller ? key : other;
    }
  }
  return key;
}

// Number of lanes of the warp before this one that are in `ballot`.
DEVICE u32 lanes_before(u32 ballot) { return __popc(ballot & ((1u << (threadIdx.x & 31)) - 1)); }

// Threads of a block that vote yes.
struct Votes {
  u32 before;  // those before this thread
  u32 all;
};

// Counts the threads of the block that vote yes, by a ballot of each warp. `counts` has a number for each
// warp; a barrier has to follow before it is written again. All threads of the block take part.
DEVICE Votes count_votes(bool vote, u32* counts) {
  const u32 warp = threadIdx.x >> 5;
  const u32 ballot = __ballot_sync(ALL_LANES, vote);
  if ((threadIdx.x & 31) == 0) counts[warp] = __popc(ballot);
  __syncthreads();
  Votes votes = {lanes_before(ballot), 0};
  for (u32 w = 0; w < THREADS / 32; w++) {
    votes.before += w < warp ? counts[w] : 0;
    votes.all += counts[w];
  }
  return votes;
}

// Returns the number of the first `count` keys that are less than `key`.
DEVICE u32 rank(const u64* keys, u32 count, u64 key) {
  u32 low = 0, high = count;
  while (low < high) {
    u32 middle = (low + high) >> 1;
    if (keys[middle] < key) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Merges one key of each thread into the sorted `list` of `held` keys, and keeps up to `most` keys. Returns
// the new number. A thread without a key passes NO_KEY; other keys are different. `merged` has room for
// `most` + THREADS keys, `sorting` for THREADS.
DEVICE u32 keep_best(u64 key, u64* list, u64* merged, u64* sorting, u32 held, u32 most) {
  const u32 thread = threadIdx.x;
  key = sorted(key, sorting);
  sorting[thread] = key;
  __syncthreads();
  // NO_KEY comes after all keys.
  merged[thread + rank(list, held, key)] = key;
  for (u32 i = thread; i < held; i += THREADS) {
    u64 own = list[i];
    merged[i + rank(sorting, THREADS, own)] = own;
  }
  const u32 all = held + rank(sorting, THREADS, NO_KEY), kept = all < most ? all : most;
  __syncthreads();
  for (u32 i = thread; i < kept; i += THREADS) list[i] = merged[i];
  __syncthreads();
  return kept;
}
