// Repeats a launch that was recorded by `EmulatedOptions::record`, for tools that must be part of a program
// from its start, such as ThreadSanitizer.
#include "simt.h"

#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <vector>

extern "C" int simt_launch(const char* kernel, const void* arguments, u32 blocks, u32 threads, u32 shared_bytes,
                           u64 seed, char* why, u32 why_bytes);

static void take(FILE* file, void* out, size_t bytes) {
  if (fread(out, 1, bytes, file) != bytes) {
    fprintf(stderr, "the record ends early\n");
    exit(3);
  }
}

template <class T>
static T number(FILE* file) {
  T value;
  take(file, &value, sizeof value);
  return value;
}

int main(int count, char** arguments) {
  FILE* file = count == 2 ? fopen(arguments[1], "rb") : nullptr;
  if (!file) {
    fprintf(stderr, "usage: replay RECORD\n");
    return 3;
  }
  const size_t page = 4096;
  for (u64 left = number<u64>(file); left > 0; left--) {
    const u64 address = number<u64>(file), bytes = number<u64>(file);
    if (bytes == 0) {
      continue;  // An empty allocation has no page.
    }
    const u64 first = address / page * page, end = (address + bytes + page - 1) / page * page;
    void* at = mmap((void*)first, end - first, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (at != (void*)first) {
      fprintf(stderr, "the memory at %llx is in use\n", first);
      return 4;
    }
    take(file, (void*)address, bytes);
  }
  char kernel[32], why[512] = "";
  take(file, kernel, sizeof kernel);
  const u32 blocks = number<u32>(file), threads = number<u32>(file), shared_bytes = number<u32>(file);
  const u64 seed = number<u64>(file);
  std::vector<u64> argument(number<u64>(file));
  take(file, argument.data(), 8 * argument.size());
  const int code = simt_launch(kernel, argument.data(), blocks, threads, shared_bytes, seed, why, sizeof why);
  if (code) fprintf(stderr, "%s\n", why);
  return code ? 5 : 0;
}
