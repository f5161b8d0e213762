// All copies are one list of units of 16 or 4 bytes. A thread loads several units before it stores
// them, so that many reads are in flight over the bus.
#include <algorithm>

#include "ops/cuda/align.h"
#include "ops/cuda/deliver.h"
#include "ops/cuda/starts.cuh"

namespace skiff::cuda {
namespace {

constexpr int kMaxCopies = 16;  // in one launch
constexpr int kThreads = 256, kUnits = 4, kMaxBlocks = 128;

struct SmallCopies {
  SmallCopy copy[kMaxCopies];
  unsigned end[kMaxCopies];  // units of all copies up to and including this one
  bool wide[kMaxCopies];     // units of 16 bytes, else of 4
  int count;
};

struct Unit {
  void* to = nullptr;
  const void* from = nullptr;
  bool wide = false;
};

__device__ Unit find(const SmallCopies& all, unsigned unit) {
  unsigned begin = 0;
  for (int p = 0; p < all.count; ++p) {
    if (unit < all.end[p]) {
      const SmallCopy& copy = all.copy[p];
      const unsigned size = all.wide[p] ? 16 : 4;
      const unsigned per_row = static_cast<unsigned>(copy.row_bytes) / size;
      const unsigned row = (unit - begin) / per_row, at = (unit - begin) % per_row * size;
      return {static_cast<char*>(copy.to) + row * copy.to_pitch + at,
              static_cast<const char*>(copy.from) + row * copy.from_pitch + at, all.wide[p]};
    }
    begin = all.end[p];
  }
  return {};
}

// The host rewrites the source between steps, so it must not be read from a cache.
__device__ uint4 read(const Unit& unit) {
  if (unit.wide) return __ldcv(static_cast<const uint4*>(unit.from));
  return {unit.from ? __ldcv(static_cast<const unsigned*>(unit.from)) : 0, 0, 0, 0};
}

__device__ void write(const Unit& unit, uint4 value) {
  if (unit.wide)
    *static_cast<uint4*>(unit.to) = value;
  else if (unit.to)
    *static_cast<unsigned*>(unit.to) = value.x;
}

// `ahead`: no kernel writes the source, so it may be loaded before griddepcontrol.wait; dependents
// are triggered only after the stores, because later kernels may read parts of the destination
// before their own wait. Without `ahead`, for copies to the host, no kernel reads the destination.
template <bool ahead>
__global__ void __launch_bounds__(kThreads)
    deliver_kernel(const __grid_constant__ SmallCopies all) {
  if (!ahead) {
    let_next_start();
    wait_for_previous();
  }
  const unsigned stride = gridDim.x * kThreads, total = all.end[all.count - 1];
  bool waited = !ahead;
  unsigned first = blockIdx.x * kThreads + threadIdx.x;
  do {
    Unit unit[kUnits];
    uint4 value[kUnits];
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      unit[i] = find(all, first + i * stride);
      value[i] = read(unit[i]);
    }
    if (!waited) wait_for_previous();
    waited = true;
#pragma unroll
    for (int i = 0; i < kUnits; ++i) write(unit[i], value[i]);
    first += kUnits * stride;
  } while (first < total);
  __threadfence();
}

bool wide(const SmallCopy& p) {
  return p.row_bytes % 16 == 0 && is_aligned(p.to, p.to_pitch) && is_aligned(p.from, p.from_pitch);
}

template <bool ahead>
void start_some(std::span<const SmallCopy> copies, Starts& starts) {
  SmallCopies all{};
  int64_t units = 0;
  for (const SmallCopy& p : copies) {
    if (p.rows == 0 || p.row_bytes == 0) continue;
    const bool is_wide = wide(p);
    units += p.rows * p.row_bytes / (is_wide ? 16 : 4);
    all.copy[all.count] = p;
    all.wide[all.count] = is_wide;
    all.end[all.count++] = static_cast<unsigned>(units);
  }
  if (all.count == 0) return;
  const int64_t blocks = std::clamp<int64_t>((units + kThreads - 1) / kThreads, 1, kMaxBlocks);
  starts.start(deliver_kernel<ahead>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), all);
}

template <bool ahead>
void start(std::span<const SmallCopy> copies, Starts& starts) {
  for (size_t i = 0; i < copies.size(); i += kMaxCopies)
    start_some<ahead>(copies.subspan(i, std::min<size_t>(kMaxCopies, copies.size() - i)), starts);
}

}  // namespace

void deliver(std::span<const SmallCopy> copies, Starts& starts) { start<true>(copies, starts); }
void deliver(std::span<const SmallCopy> copies, cudaStream_t stream) {
  Starts starts(stream);
  deliver(copies, starts);
}

void fetch(std::span<const SmallCopy> copies, Starts& starts) { start<false>(copies, starts); }
void fetch(const SmallCopy& copy, cudaStream_t stream) {
  Starts starts(stream);
  fetch({&copy, 1}, starts);
}

}  // namespace skiff::cuda
