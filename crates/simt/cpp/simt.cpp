// The scheduler of `simt.h`. It runs one block after another on the calling thread. Errors are: threads of a
// block at different barriers, lanes in different operations of a warp, masks with lanes that have ended, and
// threads that wait forever.
#include "simt.h"

#include <cstdio>
#include <memory>
#include <sys/mman.h>
#include <vector>

// With SIMT_RACES the kernels are compiled with ThreadSanitizer, and this file without it. To ThreadSanitizer
// each fiber is a thread, and only meetings order threads. So it reports all accesses of two threads to the
// same memory without a barrier between them, in whichever order they ran.
#ifdef SIMT_RACES
extern "C" {
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void* __tsan_get_current_fiber();
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
// The flag 1: a switch does not order threads.
#define TSAN_SWITCH(fiber) __tsan_switch_to_fiber(fiber, 1)
#define TSAN_ACQUIRE(place) __tsan_acquire(place)
#define TSAN_RELEASE(place) __tsan_release(place)
#else
#define TSAN_SWITCH(fiber)
#define TSAN_ACQUIRE(place)
#define TSAN_RELEASE(place)
#endif

namespace simt {
namespace {

constexpr u32 kWarp = 32;
constexpr size_t kStackBytes = 64 << 10;

enum class State { Ready, Waiting, Ended };

struct Fiber {
  void* stack_pointer = nullptr;
  State state = State::Ready;
  Meeting meeting = Meeting::Block;
  u32 mask = 0, argument = 0;
  u64 value = 0, result = 0;
  const char* file = "";
  int line = 0;
#ifdef SIMT_RACES
  void* tsan = nullptr;
#endif
};

// Addresses by which ThreadSanitizer orders the threads of a block or of a warp. Successive meetings have
// different addresses, so that a thread at the next meeting does not order one that is still at this meeting.
struct Order {
  char places[16] = {};
  u32 meetings = 0;
  char* now() { return &places[meetings % 16]; }
};

struct Block {
  u32 index = 0;
  std::vector<Fiber> fibers;
  std::vector<u64> shared;
  void* scheduler = nullptr;
  void (*run)(const void*) = nullptr;
  const void* arguments = nullptr;
  u64 random = 1;
  char failure[256] = "";
  Order all, warps[32];
#ifdef SIMT_RACES
  void* tsan = nullptr;
#endif

  Order& order(Meeting meeting, u32 thread) { return meeting == Meeting::Block ? all : warps[thread / kWarp]; }

  u32 draw() {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return (u32)(random >> 16);
  }
};

thread_local Block* block = nullptr;
thread_local u32 current = 0;

extern "C" void simt_switch(void** save, void* load);

#if defined(__x86_64__)
asm(R"(
.text
.globl simt_switch
.type simt_switch, @function
simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size simt_switch, .-simt_switch
)");
constexpr int kSaved = 6;
#elif defined(__aarch64__)
asm(R"(
.text
.globl simt_switch
.type simt_switch, %function
simt_switch:
  sub sp, sp, #176
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x2, sp
  str x2, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #176
  ret
.size simt_switch, .-simt_switch
)");
#else
#error "simt_switch has to be written for this processor"
#endif

#ifdef SIMT_RACES
// Addresses that order the beginning and the end of a launch. Blocks are not ordered.
char launched, ended;
#endif

void leave() {
  TSAN_SWITCH(block->tsan);
  simt_switch(&block->fibers[current].stack_pointer, block->scheduler);
}

void enter() {
  TSAN_ACQUIRE(&launched);
  block->run(block->arguments);
  TSAN_RELEASE(&ended);
  block->fibers[current].state = State::Ended;
  leave();
}

void* first_frame(u8* stack) {
  void** top = (void**)(stack + kStackBytes - 64);
#if defined(__x86_64__)
  *--top = nullptr;
  *--top = (void*)enter;
  for (int i = 0; i < kSaved; i++) *--top = nullptr;
#else
  top -= 22;
  for (int i = 0; i < 22; i++) top[i] = nullptr;
  top[11] = (void*)enter;
#endif
  return top;
}

void fail(const char* what, u32 thread, u32 other) {
  const Fiber &a = block->fibers[thread], &b = block->fibers[other];
  if (block->failure[0]) return;
  snprintf(block->failure, sizeof block->failure, "%s: thread %u of block %u at %s:%d, thread %u at %s:%d", what,
           thread, block->index, a.file, a.line, other, b.file, b.line);
}

// Continues the lanes of a warp that have all reached the same operation. Returns true if there were any.
bool meet_warp(u32 warp) {
  std::vector<Fiber>& fibers = block->fibers;
  for (u32 lane = 0; lane < kWarp && warp * kWarp + lane < fibers.size(); lane++) {
    const u32 thread = warp * kWarp + lane;
    Fiber& one = fibers[thread];
    if (one.state != State::Waiting || one.meeting == Meeting::Block) continue;
    const u32 mask = one.mask;
    if (!(mask >> lane & 1)) return fail("the mask of a lane does not contain the lane", thread, thread), false;
    bool all = true;
    u32 ballot = 0;
    // Only the values of lanes in the mask are written and read.
    u64 values[kWarp];
    for (u32 i = 0; i < kWarp; i++) {
      if (!(mask >> i & 1)) continue;
      const u32 other = warp * kWarp + i;
      if (other >= fibers.size()) return fail("a mask contains a lane that does not exist", thread, thread), false;
      const Fiber& peer = fibers[other];
      if (peer.state == State::Ended) return fail("a mask contains a lane that has ended", thread, other), false;
      if (peer.state != State::Waiting) {
        all = false;
        break;
      }
      if (peer.meeting != one.meeting || peer.mask != mask || peer.line != one.line)
        return fail("lanes of a warp are in different operations", thread, other), false;
      values[i] = peer.value;
      ballot |= (u32)(peer.value != 0) << i;
    }
    if (!all) continue;
    for (u32 i = 0; i < kWarp; i++) {
      if (!(mask >> i & 1)) continue;
      Fiber& peer = fibers[warp * kWarp + i];
      const u32 from = (i ^ peer.argument) & 31;
      if (peer.meeting == Meeting::ShuffleXor && !(mask >> from & 1))
        return fail("a shuffle reads a lane that its mask does not contain", warp * kWarp + i, warp * kWarp + from), false;
      peer.result = peer.meeting == Meeting::Ballot ? ballot : peer.meeting == Meeting::ShuffleXor ? values[from] : 0;
      peer.state = State::Ready;
    }
    block->warps[warp].meetings++;
    return true;
  }
  return false;
}

// Continues all threads if they have reached the same barrier. Returns true if they have.
bool meet_block() {
  std::vector<Fiber>& fibers = block->fibers;
  long first = -1;
  for (u32 thread = 0; thread < fibers.size(); thread++) {
    const Fiber& one = fibers[thread];
    if (one.state == State::Ended) {
      if (first >= 0) return fail("a thread has ended before a barrier", (u32)first, thread), false;
      continue;
    }
    if (one.state != State::Waiting || one.meeting != Meeting::Block) return false;
    if (first < 0) {
      if (thread > 0) return fail("a thread has ended before a barrier", thread, 0), false;
      first = thread;
    } else if (fibers[first].line != one.line) {
      return fail("threads of a block are at different barriers", (u32)first, thread), false;
    }
  }
  if (first < 0) return false;
  for (Fiber& one : fibers) one.state = State::Ready;
  block->all.meetings++;
  return true;
}

void run_block(u32 threads, u8* stacks) {
  block->fibers.assign(threads, Fiber());
  // As on a device, shared memory has arbitrary content at first.
  for (u64& word : block->shared) word = (u64)block->draw() << 32 | block->draw();
  std::vector<u32> order(threads);
  for (u32 i = 0; i < threads; i++) {
    block->fibers[i].stack_pointer = first_frame(stacks + i * kStackBytes);
    order[i] = i;
#ifdef SIMT_RACES
    block->fibers[i].tsan = __tsan_create_fiber(0);
#endif
  }
#ifdef SIMT_RACES
  block->tsan = __tsan_get_current_fiber();
#endif
  while (!block->failure[0]) {
    for (u32 i = threads; i > 1; i--) {
      const u32 j = block->draw() % i, kept = order[i - 1];
      order[i - 1] = order[j];
      order[j] = kept;
    }
    bool ran = false, live = false;
    for (u32 thread : order) {
      if (block->fibers[thread].state != State::Ready) continue;
      ran = true;
      current = thread;
      TSAN_SWITCH(block->fibers[thread].tsan);
      simt_switch(&block->scheduler, block->fibers[thread].stack_pointer);
      while (meet_warp(thread / kWarp)) {}
    }
    for (const Fiber& one : block->fibers) live |= one.state != State::Ended;
    if (!live) return;
    const bool met = meet_block();
    if (!ran && !met && !block->failure[0]) {
      for (u32 i = 0; i < threads; i++) {
        if (block->fibers[i].state != State::Ended) return fail("threads wait forever", i, i);
      }
    }
  }
}

}  // namespace

u32 thread_index() { return current; }
u32 block_index() { return block->index; }
u8* shared_memory() { return (u8*)block->shared.data(); }

u64 meet(Meeting meeting, u32 mask, u64 value, u32 argument, const char* file, int line) {
  Fiber& me = block->fibers[current];
  me.state = State::Waiting;
  me.meeting = meeting;
  me.mask = mask;
  me.value = value;
  me.argument = argument;
  me.file = file;
  me.line = line;
  // The address is read before other threads continue, which changes it.
  char* place = block->order(meeting, current).now();
  (void)place;
  TSAN_RELEASE(place);
  leave();
  TSAN_ACQUIRE(place);
  return block->fibers[current].result;
}

// Runs `blocks` blocks of `threads` threads with `shared_bytes` of shared memory each. Returns false, and
// writes a message to `why`, for an invalid operation.
bool launch(void (*run)(const void*), const void* arguments, u32 blocks, u32 threads, u32 shared_bytes, u64 seed,
            char* why, u32 why_bytes) {
  // For ThreadSanitizer each block has its own stacks and shared memory until the end: if blocks reused them,
  // their accesses would count as races.
#ifdef SIMT_RACES
  const size_t sets = blocks;
#else
  const size_t sets = 1;
#endif
  const size_t bytes = sets * threads * kStackBytes;
  u8* stacks = (u8*)mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) {
    snprintf(why, why_bytes, "no memory for the stacks of %u threads", threads);
    return false;
  }
  TSAN_RELEASE(&launched);
  std::vector<std::unique_ptr<Block>> kept;
  bool sound = true;
  for (u32 i = 0; i < blocks && sound; i++) {
    kept.push_back(std::make_unique<Block>());
    block = kept.back().get();
    block->index = i;
    block->run = run;
    block->arguments = arguments;
    block->shared.resize((shared_bytes + 7) / 8);
    block->random = (seed + 1) * 0x9E3779B97F4A7C15ull + i;
    run_block(threads, stacks + i % sets * threads * kStackBytes);
    sound = !block->failure[0];
    if (!sound) snprintf(why, why_bytes, "%s", block->failure);
#ifndef SIMT_RACES
    kept.clear();
#endif
    block = nullptr;
  }
  TSAN_ACQUIRE(&ended);
  munmap(stacks, bytes);
  return sound;
}

}  // namespace simt
