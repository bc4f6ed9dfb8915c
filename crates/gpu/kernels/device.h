// What the kernels are written in: the words of CUDA C++, for NVRTC as they are, and for the host's compiler as functions of
// `crates/simt` (SIMT), which runs the same sources on threads that it switches between.
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
// Before a loop whose body is there once.
#define ROLLED _Pragma("unroll 1")
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)

// `sum` and the products of four signed bytes each. NVRTC has no body for CUDA's own word for it.
DEVICE int dot4(u32 a, u32 b, int sum) {
  int out;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(sum));
  return out;
}

// The same of unsigned bytes.
DEVICE u32 dot4_unsigned(u32 a, u32 b, u32 sum) {
  u32 out;
  asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(sum));
  return out;
}
#endif

#define ALL_LANES 0xffffffffu

// A number that was stored as f16: finite, of any sign.
DEVICE float half_float(u32 bits) {
  float magnitude = __fmul_rn(__uint_as_float((bits & 0x7fffu) << 13), __uint_as_float((127u + 112u) << 23));
  return __uint_as_float(__float_as_uint(magnitude) | (bits & 0x8000u) << 16);
}
