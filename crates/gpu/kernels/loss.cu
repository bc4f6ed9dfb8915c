// Losses of members that move to a group near theirs: the squared distance to the other mean minus that to
// their own. All coordinates are relative to the own mean. A block has up to 64 members of a group and 32
// other groups, and a thread 4 x 4 of these pairs.
//
// The losses equal a processor's bit for bit: each sum runs over the coordinates in order, and each product
// and each sum is rounded separately.
#include "device.h"

#define LOSS_THREADS 128
// Maximum number of members of a group, and of other groups, of a block.
#define MEMBERS 64
#define OTHERS 32
// Number of coordinates between two barriers.
#define COORDINATES 32
// Distance from one coordinate of all members, or of all other groups, to the next.
#define MEMBER_PITCH (MEMBERS + 1)
#define OTHER_PITCH (OTHERS + 1)

// Argument of the kernel. `Losses::begin` in src/losses.rs writes it.
struct LossArgs {
  const float* points;  // `dim` coordinates each
  const u32* members;   // numbers of points, `unit` for each group; the last group may have fewer
  const float* means;   // means of all groups
  const u32* near;      // OTHERS groups for each group of the launch, of which the first `others` are used
  float* losses;        // output: `others` for each member
  u32 dim;
  u32 others;
  u32 unit;
  u32 count;  // number of members
  u32 first;  // number of the first group
  u32 tiles;  // number of blocks for each group
};

KERNEL(LOSS_THREADS) loss(LossArgs args) {
  SHARED(pool);
  float* members = (float*)pool;
  float* others = members + COORDINATES * MEMBER_PITCH;
  float* squares = others + COORDINATES * OTHER_PITCH;
  const u32 thread = threadIdx.x, x = thread % 8, y = thread / 8;
  const u32 group = blockIdx.x / args.tiles, tile = blockIdx.x % args.tiles * MEMBERS;
  const u64 start = (u64)group * args.unit;
  const u64 left = args.count - start, held = left < args.unit ? left : args.unit;
  // The block has no members.
  if (tile >= held) return;
  const u32 count = held - tile < MEMBERS ? (u32)(held - tile) : MEMBERS;
  const u32* ids = args.members + start + tile;
  const u32* near = args.near + (u64)group * OTHERS;
  const float* own = args.means + (u64)(args.first + group) * args.dim;
  float sums[4][4] = {};
  float square = 0.0f;
  for (u32 first = 0; first < args.dim; first += COORDINATES) {
    __syncthreads();
    for (u32 i = thread; i < COORDINATES * MEMBERS; i += LOSS_THREADS) {
      const u32 member = i / COORDINATES, at = first + i % COORDINATES;
      const bool there = member < count && at < args.dim;
      members[i % COORDINATES * MEMBER_PITCH + member] =
          there ? __fadd_rn(args.points[(u64)ids[member] * args.dim + at], -own[at]) : 0.0f;
    }
    for (u32 i = thread; i < COORDINATES * OTHERS; i += LOSS_THREADS) {
      const u32 other = i / COORDINATES, at = first + i % COORDINATES;
      const bool there = other < args.others && at < args.dim;
      others[i % COORDINATES * OTHER_PITCH + other] =
          there ? __fadd_rn(args.means[(u64)near[other] * args.dim + at], -own[at]) : 0.0f;
    }
    __syncthreads();
    // Zeros after the last coordinate change no sum.
    for (u32 i = 0; i < COORDINATES; i++) {
      float a[4], b[4];
      for (u32 j = 0; j < 4; j++) {
        a[j] = members[i * MEMBER_PITCH + y + 16 * j];
        b[j] = others[i * OTHER_PITCH + x + 8 * j];
      }
      for (u32 j = 0; j < 4; j++) {
        for (u32 k = 0; k < 4; k++) sums[j][k] = __fadd_rn(sums[j][k], __fmul_rn(a[j], b[k]));
      }
      if (thread < OTHERS) {
        const float value = others[i * OTHER_PITCH + thread];
        square = __fadd_rn(square, __fmul_rn(value, value));
      }
    }
  }
  if (thread < OTHERS) squares[thread] = square;
  __syncthreads();
  float* losses = args.losses + (start + tile) * args.others;
  for (u32 j = 0; j < 4; j++) {
    for (u32 k = 0; k < 4; k++) {
      const u32 member = y + 16 * j, other = x + 8 * k;
      if (member >= count || other >= args.others) continue;
      losses[(u64)member * args.others + other] =
          __fadd_rn(squares[other], -__fmul_rn(2.0f, sums[j][k]));
    }
  }
}
