// Exact distances of full vectors. A warp computes one distance at a time. Distances of bytes and bits equal
// a processor's bit for bit; those of floats may differ in the order of sums.
#pragma once
#include "keys.h"

// Types of components, numbered as in `Exact::words` in src/exact.rs.
#define F32 0
#define F16 1
#define U8 2
#define I8 3
#define BF16 4
#define B1 5
// Metrics.
#define SQUARED_L2 0
#define INNER_PRODUCT 1
#define COSINE 2

// Parameters of distances. `Exact::words` in src/exact.rs writes them.
struct Exact {
  u32 dim;
  u32 row_bytes;  // bytes from one row to the next, a multiple of four
  u32 component;  // type of the components of rows
  u32 of_floats;  // 1 if queries are f32; otherwise they have the type of rows
  u32 metric;
  float scale;    // a distance is shift + scale * metric
  float shift;
  u32 unused;
};

// Sums for a distance: squared differences or products, and the squares of both vectors for cosines.
template <class T>
struct Sums {
  T ab, aa, bb;
};

// Returns component `j` of a word of bytes.
DEVICE int byte_of(u32 word, u32 j, u32 component) {
  u32 byte = word >> 8 * j & 0xff;
  return component == I8 ? (int)(byte ^ 0x80u) - 128 : (int)byte;
}

// Returns component `i` of a vector as a float.
DEVICE float float_of(const u32* words, u32 i, u32 component) {
  if (component == F32) return __uint_as_float(words[i]);
  if (component == F16) return half_float(words[i / 2] >> 16 * (i % 2));
  if (component == BF16) return __uint_as_float(words[i / 2] >> 16 * (i % 2) << 16);
  return __int2float_rn(byte_of(words[i / 4], i % 4, component));
}

DEVICE Sums<u32> sums_of_bytes(const Exact& exact, const u32* query, const u32* row) {
  Sums<u32> sums = {0, 0, 0};
  for (u32 w = threadIdx.x & 31; 4 * w < exact.dim; w += 32) {
    const u32 left = exact.dim - 4 * w, a = query[w], b = row[w];
    for (u32 j = 0; j < 4 && j < left; j++) {
      const int x = byte_of(a, j, exact.component), y = byte_of(b, j, exact.component);
      sums.ab += (u32)(exact.metric == SQUARED_L2 ? (x - y) * (x - y) : x * y);
      sums.aa += (u32)(x * x);
      sums.bb += (u32)(y * y);
    }
  }
  return sums;
}

// The squared difference of two bits is 1 if they differ, and their product is 1 if both are set.
DEVICE Sums<u32> sums_of_bits(const Exact& exact, const u32* query, const u32* row) {
  Sums<u32> sums = {0, 0, 0};
  const u32 bits = (exact.dim + 7) / 8 * 8;
  for (u32 w = threadIdx.x & 31; 32 * w < bits; w += 32) {
    const u32 left = bits - 32 * w, mask = left < 32 ? (1u << left) - 1 : ~0u;
    const u32 a = query[w] & mask, b = row[w] & mask;
    sums.ab += __popc(exact.metric == SQUARED_L2 ? a ^ b : a & b);
    sums.aa += __popc(a);
    sums.bb += __popc(b);
  }
  return sums;
}

DEVICE Sums<float> sums_of_floats(const Exact& exact, const u32* query, const u32* row) {
  Sums<float> sums = {0, 0, 0};
  const u32 own = exact.of_floats ? F32 : exact.component;
  for (u32 i = threadIdx.x & 31; i < exact.dim; i += 32) {
    const float x = float_of(query, i, own), y = float_of(row, i, exact.component);
    const float between = __fsub_rn(x, y);
    sums.ab = __fadd_rn(sums.ab, exact.metric == SQUARED_L2 ? __fmul_rn(between, between) : __fmul_rn(x, y));
    sums.aa = __fadd_rn(sums.aa, __fmul_rn(x, x));
    sums.bb = __fadd_rn(sums.bb, __fmul_rn(y, y));
  }
  return sums;
}

// Adds the sums of all lanes, and gives each lane the result.
DEVICE void add_lanes(Sums<u32>& sums) {
  for (u32 stride = 16; stride > 0; stride >>= 1) {
    sums.ab += __shfl_xor_sync(ALL_LANES, sums.ab, stride);
    sums.aa += __shfl_xor_sync(ALL_LANES, sums.aa, stride);
    sums.bb += __shfl_xor_sync(ALL_LANES, sums.bb, stride);
  }
}

DEVICE void add_lanes(Sums<float>& sums) {
  for (u32 stride = 16; stride > 0; stride >>= 1) {
    sums.ab = __fadd_rn(sums.ab, __shfl_xor_sync(ALL_LANES, sums.ab, stride));
    sums.aa = __fadd_rn(sums.aa, __shfl_xor_sync(ALL_LANES, sums.aa, stride));
    sums.bb = __fadd_rn(sums.bb, __shfl_xor_sync(ALL_LANES, sums.bb, stride));
  }
}

// Returns the value of the metric. The cosine distance of a zero vector is 1.
DEVICE float between(u32 metric, Sums<float> sums) {
  if (metric == SQUARED_L2) return sums.ab;
  if (metric == INNER_PRODUCT) return -sums.ab;
  if (sums.aa == 0.0f || sums.bb == 0.0f) return 1.0f;
  float cosine = __fdiv_rn(sums.ab, __fsqrt_rn(__fmul_rn(sums.aa, sums.bb)));
  cosine = cosine < -1.0f ? -1.0f : cosine > 1.0f ? 1.0f : cosine;
  return __fsub_rn(1.0f, cosine);
}

// Returns the distance of a query and a row to each lane of the warp.
DEVICE float distance_of(const Exact& exact, const u32* query, const u8* rows, u64 at) {
  const u32* row = (const u32*)(rows + at * exact.row_bytes);
  Sums<float> sums;
  const bool bits = exact.component == B1, bytes = exact.component == U8 || exact.component == I8;
  if (bits || (bytes && !exact.of_floats)) {
    Sums<u32> whole = bits ? sums_of_bits(exact, query, row) : sums_of_bytes(exact, query, row);
    add_lanes(whole);
    // Sums of unsigned bytes may take all 32 bits. Sums of products of signed bytes may be negative.
    const bool negative = exact.component == I8 && exact.metric != SQUARED_L2;
    sums.ab = negative ? __int2float_rn((int)whole.ab) : __uint2float_rn(whole.ab);
    sums.aa = __uint2float_rn(whole.aa);
    sums.bb = __uint2float_rn(whole.bb);
  } else {
    sums = sums_of_floats(exact, query, row);
    add_lanes(sums);
  }
  return __fadd_rn(exact.shift, __fmul_rn(exact.scale, between(exact.metric, sums)));
}

// Returns the key of a result. Equal distances are in the order of ids.
DEVICE u64 answer_key(float distance, u32 id) {
  return distance != distance ? NO_KEY : (u64)ordered(distance) << 32 | id;
}
