// The kernels of `crates/gpu`, found by name.
#include "hop.cu"
#include "loss.cu"
#include "nearest.cu"
#include "pages.cu"
#include "rerank.cu"
#include "scan.cu"
#include "walk.cu"

namespace simt {
bool launch(void (*run)(const void*), const void* arguments, u32 blocks, u32 threads, u32 shared_bytes, u64 seed,
            char* why, u32 why_bytes);
}

extern "C" int simt_launch(const char* kernel, const void* arguments, u32 blocks, u32 threads, u32 shared_bytes,
                           u64 seed, char* why, u32 why_bytes) {
  void (*run)(const void*) = nullptr;
  if (!strcmp(kernel, "hop")) run = [](const void* arguments) { hop(*(const HopArgs*)arguments); };
  if (!strcmp(kernel, "pages")) run = [](const void* arguments) { pages(*(const PageArgs*)arguments); };
  if (!strcmp(kernel, "scan")) run = [](const void* arguments) { scan(*(const ScanArgs*)arguments); };
  if (!strcmp(kernel, "rerank")) run = [](const void* arguments) { rerank(*(const RerankArgs*)arguments); };
  if (!strcmp(kernel, "walk")) run = [](const void* arguments) { walk(*(const WalkArgs*)arguments); };
  if (!strcmp(kernel, "loss")) run = [](const void* arguments) { loss(*(const LossArgs*)arguments); };
  if (!strcmp(kernel, "nearest")) run = [](const void* arguments) { nearest(*(const NearestArgs*)arguments); };
  if (!run) return 2;
  return simt::launch(run, arguments, blocks, threads, shared_bytes, seed, why, why_bytes) ? 0 : 1;
}
