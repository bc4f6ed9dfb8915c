// The language of the kernels: CUDA C++ for NVRTC. With SIMT, `crates/simt` defines the parts of it for the
// compiler of the host, and emulates the threads.
#pragma once

#ifdef SIMT
#include "simt.h"
#else
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
#define SHARED(name) extern __shared__ __align__(16) u8 name[]
#define DEVICE __device__ __forceinline__
// Before a loop that must not be unrolled.
#define ROLLED _Pragma("unroll 1")
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)

// Adds the products of four signed bytes of `a` and `b` to `sum`. NVRTC does not define CUDA's function for
// this.
DEVICE int dot4(u32 a, u32 b, int sum) {
  int out;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(sum));
  return out;
}

// Adds the products of four unsigned bytes to `sum`.
DEVICE u32 dot4_unsigned(u32 a, u32 b, u32 sum) {
  u32 out;
  asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(sum));
  return out;
}
#endif

#define ALL_LANES 0xffffffffu

// Converts an f16 number, which must be finite.
DEVICE float half_float(u32 bits) {
  float magnitude = __fmul_rn(__uint_as_float((bits & 0x7fffu) << 13), __uint_as_float((127u + 112u) << 23));
  return __uint_as_float(__float_as_uint(magnitude) | (bits & 0x8000u) << 16);
}
