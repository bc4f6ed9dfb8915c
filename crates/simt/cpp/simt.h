// The parts of CUDA C++ that the kernels use, for the compiler of the host. Each thread of a block is a
// fiber, which runs until it waits for others at a barrier or in an operation of its warp. A seed draws the
// order in which threads continue.
#pragma once
#include <cstdint>
#include <cstring>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef unsigned long long u64;

namespace simt {

// Operations in which threads wait for each other.
enum class Meeting : u32 { Block, Warp, Ballot, ShuffleXor };

u32 thread_index();
u32 block_index();
u8* shared_memory();

// Waits for the other threads of the block, or for the lanes in `mask` of the warp. `value` is the operand of
// this thread. Returns the result of the operation.
u64 meet(Meeting meeting, u32 mask, u64 value, u32 argument, const char* file, int line);

// CUDA's types of `threadIdx` and `blockIdx`.
struct ThreadIndex { struct { operator u32() const { return thread_index(); } } x; };
struct BlockIndex { struct { operator u32() const { return block_index(); } } x; };
static const ThreadIndex thread_indices;
static const BlockIndex block_indices;

template <class T>
T shuffle(Meeting meeting, u32 mask, T value, u32 argument, const char* file, int line) {
  u64 given = 0;
  static_assert(sizeof(T) <= sizeof(given), "a value must have one or two registers");
  memcpy(&given, &value, sizeof(T));
  u64 got = meet(meeting, mask, given, argument, file, line);
  memcpy(&value, &got, sizeof(T));
  return value;
}

}  // namespace simt

#define DEVICE static inline
#define ROLLED
// Kernels have different types of arguments; `simt_launch` finds a kernel by its name.
#define KERNEL(threads) static void
#define SHARED(name) u8* name = simt::shared_memory()
#define threadIdx simt::thread_indices
#define blockIdx simt::block_indices

#define SIMT_WHERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(SIMT_WHERE) { simt::meet(simt::Meeting::Block, 0, 0, 0, file, line); }
inline void __syncwarp(u32 mask, SIMT_WHERE) { simt::meet(simt::Meeting::Warp, mask, 0, 0, file, line); }
inline u32 __ballot_sync(u32 mask, int vote, SIMT_WHERE) {
  return (u32)simt::meet(simt::Meeting::Ballot, mask, vote != 0, 0, file, line);
}
template <class T>
inline T __shfl_xor_sync(u32 mask, T value, u32 lanes, SIMT_WHERE) {
  return simt::shuffle(simt::Meeting::ShuffleXor, mask, value, lanes, file, line);
}

inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __popc(u32 bits) { return __builtin_popcount(bits); }
inline int __popcll(u64 bits) { return __builtin_popcountll(bits); }
inline u32 __funnelshift_r(u32 low, u32 high, u32 shift) {
  return (u32)(((u64)high << 32 | low) >> (shift & 31));
}
inline int dot4(u32 a, u32 b, int sum) {
  for (int i = 0; i < 4; i++) sum += (int)(int8_t)(a >> 8 * i) * (int)(int8_t)(b >> 8 * i);
  return sum;
}
inline u32 dot4_unsigned(u32 a, u32 b, u32 sum) {
  for (int i = 0; i < 4; i++) sum += (a >> 8 * i & 255) * (b >> 8 * i & 255);
  return sum;
}
// Threads of all blocks may add to the same number.
inline u64 atomicAdd(u64* to, u64 value) { return __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }
inline u32 __float_as_uint(float value) {
  u32 bits;
  memcpy(&bits, &value, 4);
  return bits;
}
inline float __uint_as_float(u32 bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
inline float __uint2float_rn(u32 value) { return (float)value; }
inline float __int2float_rn(int value) { return (float)value; }
// Each operation rounds once, since contraction is disabled by a compiler option.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float value) { return __builtin_sqrtf(value); }
// Rounds once.
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
