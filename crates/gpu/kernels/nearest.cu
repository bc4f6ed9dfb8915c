// Products of many queries with many vectors. A block computes a tile of 128 x 128 pairs, whose rows pass
// through shared memory, and returns the pairs whose value is not above the limit of the query. A processor
// computes the distances of these pairs again. So sums may be in any order, and fused, within the error that
// the limits allow for. `crates/vectors` does the same on a processor.
//
// A row consists of words of 4 bytes, with zeros after its last value. A cell is a factor of a product: a
// float, four bytes, or 32 bits.
#include "device.h"

// Number of queries, and of vectors, of a tile. A thread has 8 x 8 of its pairs.
#define TILE 128
#define TILE_THREADS 256
// Number of cells of a row between two barriers.
#define CELLS 16
// Number of words from one cell of all rows to the next, so that neighbouring rows are in different banks of
// shared memory.
#define PITCH (TILE + 4)

// Kinds of cells, numbered as in `Cells::kind` in src/nearest/sizes.rs.
#define FLOATS 0
#define HALVES 1
#define UNSIGNED 2
#define SIGNED 3
#define UPPER_HALVES 4
#define BITS 5

// True if a word holds two cells.
#define IN_PAIRS(kind) ((kind) == HALVES || (kind) == UPPER_HALVES)

// Argument of the kernel. `Nearest::launch` in src/nearest/mod.rs writes it.
struct NearestArgs {
  const u32* queries;
  const u32* vectors;   // rows of a block of vectors
  const float* biases;  // one for each vector
  const float* scales;  // one for each vector
  const float* limits;  // one for each query
  u64* found;           // output: the number of pairs, then up to `room` of them as query << 32 | vector
  u64 room;             // maximum number of pairs
  u32 words;            // number of words of a row
  u32 kind;
  u32 query_count;
  u32 first, count;     // range of the vectors
  u32 unused;
};

struct alignas(16) Four {
  u32 cells[4];
};

DEVICE Four four(const u32* cells) { return *(const Four*)cells; }

// Adds the product of two cells to `sum`.
template <u32 KIND>
DEVICE u32 multiplied(u32 a, u32 b, u32 sum) {
  if (KIND == UNSIGNED) return dot4_unsigned(a, b, sum);
  if (KIND == SIGNED) return (u32)dot4(a, b, (int)sum);
  if (KIND == BITS) return sum + (u32)__popc(a & b);
  return __float_as_uint(__fmaf_rn(__uint_as_float(a), __uint_as_float(b), __uint_as_float(sum)));
}

template <u32 KIND>
DEVICE float product(u32 sum) {
  if (KIND == UNSIGNED || KIND == BITS) return __uint2float_rn(sum);
  if (KIND == SIGNED) return __int2float_rn((int)sum);
  return __uint_as_float(sum);
}

// Writes the cells of one step of a tile to shared memory, each cell of all rows together. Cells after the
// last row or word are zero.
template <u32 KIND>
DEVICE void take_cells(const u32* rows, u64 first, u32 count, u32 words, u32 step, u32* cells) {
  const u32 taken = IN_PAIRS(KIND) ? CELLS / 2 : CELLS;
  for (u32 i = threadIdx.x; i < TILE * taken; i += TILE_THREADS) {
    const u32 row = i / taken, word = i % taken, at = step * taken + word;
    const u32 value = row < count && at < words ? rows[(first + row) * words + at] : 0;
    if (KIND == HALVES) {
      cells[2 * word * PITCH + row] = __float_as_uint(half_float(value));
      cells[(2 * word + 1) * PITCH + row] = __float_as_uint(half_float(value >> 16));
    } else if (KIND == UPPER_HALVES) {
      cells[2 * word * PITCH + row] = value << 16;
      cells[(2 * word + 1) * PITCH + row] = value & 0xffff0000u;
    } else {
      cells[word * PITCH + row] = value;
    }
  }
}

// Returns the row in the tile of row `i` of a thread, which has two sequences of four neighbouring rows.
DEVICE u32 row_of(u32 thread, u32 i) { return TILE / 2 * (i / 4) + 4 * thread + i % 4; }

template <u32 KIND>
DEVICE void screen_tile(const NearestArgs& args, u32* queries) {
  u32* vectors = queries + CELLS * PITCH;
  const u32 tiles = (args.query_count + TILE - 1) / TILE;
  const u32 first_query = blockIdx.x % tiles * TILE, first_vector = blockIdx.x / tiles * TILE;
  const u32 query_count = args.query_count - first_query, count = args.count - first_vector;
  const u32 x = threadIdx.x % 16, y = threadIdx.x / 16;
  const u32 taken = IN_PAIRS(KIND) ? CELLS / 2 : CELLS;
  u32 sums[8][8] = {};
  for (u32 step = 0; step * taken < args.words; step++) {
    __syncthreads();
    take_cells<KIND>(args.queries, first_query, query_count, args.words, step, queries);
    take_cells<KIND>(args.vectors, (u64)args.first + first_vector, count, args.words, step, vectors);
    __syncthreads();
    for (u32 cell = 0; cell < CELLS; cell++) {
      const Four a[2] = {four(queries + cell * PITCH + 4 * y),
                         four(queries + cell * PITCH + TILE / 2 + 4 * y)};
      const Four b[2] = {four(vectors + cell * PITCH + 4 * x),
                         four(vectors + cell * PITCH + TILE / 2 + 4 * x)};
      for (u32 i = 0; i < 8; i++) {
        for (u32 j = 0; j < 8; j++) {
          sums[i][j] = multiplied<KIND>(a[i / 4].cells[i % 4], b[j / 4].cells[j % 4], sums[i][j]);
        }
      }
    }
  }
  u64 near = 0;
  for (u32 j = 0; j < 8; j++) {
    const u32 row = row_of(x, j);
    if (row >= count) continue;
    const float bias = args.biases[args.first + first_vector + row];
    const float scale = args.scales[args.first + first_vector + row];
    for (u32 i = 0; i < 8; i++) {
      const u32 query = row_of(y, i);
      if (query >= query_count) continue;
      const float value = __fadd_rn(bias, -__fmul_rn(scale, product<KIND>(sums[i][j])));
      // A value that is not a number is not above the limit, so such pairs are returned.
      if (!(value > args.limits[first_query + query])) near |= 1ull << (8 * i + j);
    }
  }
  if (near == 0) return;
  u64 at = atomicAdd(args.found, (u64)__popcll(near));
  ROLLED
  for (u32 pair = 0; pair < 64; pair++) {
    if (!(near >> pair & 1)) continue;
    const u64 query = first_query + row_of(y, pair / 8);
    if (at < args.room) args.found[1 + at] = query << 32 | (args.first + first_vector + row_of(x, pair % 8));
    at++;
  }
}

KERNEL(TILE_THREADS) nearest(NearestArgs args) {
  SHARED(pool);
  switch (args.kind) {
    case FLOATS: return screen_tile<FLOATS>(args, (u32*)pool);
    case HALVES: return screen_tile<HALVES>(args, (u32*)pool);
    case UNSIGNED: return screen_tile<UNSIGNED>(args, (u32*)pool);
    case UPPER_HALVES: return screen_tile<UPPER_HALVES>(args, (u32*)pool);
    case BITS: return screen_tile<BITS>(args, (u32*)pool);
    default: return screen_tile<SIGNED>(args, (u32*)pool);
  }
}
