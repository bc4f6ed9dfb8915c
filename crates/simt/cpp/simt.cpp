// The scheduler of `simt.h`, one block after the other on the calling thread, and what it complains of: threads of a block that meet at
// different barriers, lanes that meet for different things, masks that name lanes which are gone, threads that wait for ever.
#include "simt.h"

#include <cstdio>
#include <sys/mman.h>
#include <vector>

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

void leave() { simt_switch(&block->fibers[current].stack_pointer, block->scheduler); }

void enter() {
  block->run(block->arguments);
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

// Lets the lanes of a warp go on that have all met; whether there were any.
bool meet_warp(u32 warp) {
  std::vector<Fiber>& fibers = block->fibers;
  for (u32 lane = 0; lane < kWarp && warp * kWarp + lane < fibers.size(); lane++) {
    const u32 thread = warp * kWarp + lane;
    Fiber& one = fibers[thread];
    if (one.state != State::Waiting || one.meeting == Meeting::Block) continue;
    const u32 mask = one.mask;
    if (!(mask >> lane & 1)) return fail("a lane that its own mask does not name", thread, thread), false;
    bool all = true;
    u32 ballot = 0;
    u64 values[kWarp] = {};
    for (u32 i = 0; i < kWarp; i++) {
      if (!(mask >> i & 1)) continue;
      const u32 other = warp * kWarp + i;
      if (other >= fibers.size()) return fail("a mask names a lane that there is not", thread, thread), false;
      const Fiber& peer = fibers[other];
      if (peer.state == State::Ended) return fail("a mask names a lane that has ended", thread, other), false;
      if (peer.state != State::Waiting) {
        all = false;
        break;
      }
      if (peer.meeting != one.meeting || peer.mask != mask || peer.line != one.line)
        return fail("lanes of a warp meet for different things", thread, other), false;
      values[i] = peer.value;
      ballot |= (u32)(peer.value != 0) << i;
    }
    if (!all) continue;
    for (u32 i = 0; i < kWarp; i++) {
      if (!(mask >> i & 1)) continue;
      Fiber& peer = fibers[warp * kWarp + i];
      const u32 from = (i ^ peer.argument) & 31;
      if (peer.meeting == Meeting::ShuffleXor && !(mask >> from & 1))
        return fail("a shuffle from a lane that its mask does not name", warp * kWarp + i, warp * kWarp + from), false;
      peer.result = peer.meeting == Meeting::Ballot ? ballot : peer.meeting == Meeting::ShuffleXor ? values[from] : 0;
      peer.state = State::Ready;
    }
    return true;
  }
  return false;
}

// Lets all threads go on if all that are left have met; whether they have.
bool meet_block() {
  std::vector<Fiber>& fibers = block->fibers;
  long first = -1;
  for (u32 thread = 0; thread < fibers.size(); thread++) {
    const Fiber& one = fibers[thread];
    if (one.state == State::Ended) {
      if (first >= 0) return fail("a barrier that a thread has passed by", (u32)first, thread), false;
      continue;
    }
    if (one.state != State::Waiting || one.meeting != Meeting::Block) return false;
    if (first < 0) {
      if (thread > 0) return fail("a barrier that a thread has passed by", thread, 0), false;
      first = thread;
    } else if (fibers[first].line != one.line) {
      return fail("threads of a block meet at different barriers", (u32)first, thread), false;
    }
  }
  if (first < 0) return false;
  for (Fiber& one : fibers) one.state = State::Ready;
  return true;
}

void run_block(u32 threads, u8* stacks) {
  block->fibers.assign(threads, Fiber());
  // As on a device, memory begins with whatever was there.
  for (u64& word : block->shared) word = (u64)block->draw() << 32 | block->draw();
  std::vector<u32> order(threads);
  for (u32 i = 0; i < threads; i++) {
    block->fibers[i].stack_pointer = first_frame(stacks + i * kStackBytes);
    order[i] = i;
  }
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
      simt_switch(&block->scheduler, block->fibers[thread].stack_pointer);
      while (meet_warp(thread / kWarp)) {}
    }
    for (const Fiber& one : block->fibers) live |= one.state != State::Ended;
    if (!live) return;
    const bool met = meet_block();
    if (!ran && !met && !block->failure[0]) {
      for (u32 i = 0; i < threads; i++) {
        if (block->fibers[i].state != State::Ended) return fail("threads wait for ever", i, i);
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
  leave();
  return block->fibers[current].result;
}

// Runs `blocks` blocks of `threads` threads that share `shared_bytes`; false with a sentence in `why` if they did what no kernel may.
bool launch(void (*run)(const void*), const void* arguments, u32 blocks, u32 threads, u32 shared_bytes, u64 seed,
            char* why, u32 why_bytes) {
  u8* stacks = (u8*)mmap(nullptr, threads * kStackBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) {
    snprintf(why, why_bytes, "no memory for the stacks of %u threads", threads);
    return false;
  }
  bool sound = true;
  for (u32 i = 0; i < blocks && sound; i++) {
    Block one;
    one.index = i;
    one.run = run;
    one.arguments = arguments;
    one.shared.resize((shared_bytes + 7) / 8);
    one.random = (seed + 1) * 0x9E3779B97F4A7C15ull + i;
    block = &one;
    run_block(threads, stacks);
    block = nullptr;
    sound = !one.failure[0];
    if (!sound) snprintf(why, why_bytes, "%s", one.failure);
  }
  munmap(stacks, threads * kStackBytes);
  return sound;
}

}  // namespace simt
