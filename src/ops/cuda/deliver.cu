// Units of 16 or 4 bytes, of all parcels one after the other; a thread takes some at a time, so
// that many reads are on their way over the bus at once.
#include <algorithm>

#include "ops/cuda/align.h"
#include "ops/cuda/deliver.h"
#include "ops/cuda/launch.cuh"

namespace skiff::cuda {
namespace {

constexpr int kMost = 16;  // parcels of a launch
constexpr int kThreads = 256, kUnits = 4, kMostBlocks = 128;

struct Parcels {
  Parcel parcel[kMost];
  unsigned end[kMost];  // units of the parcels up to this one
  bool wide[kMost];     // units are of 16 bytes
  int count;
};

struct Unit {
  void* to = nullptr;
  const void* from = nullptr;
  bool wide = false;
};

__device__ Unit find(const Parcels& all, unsigned unit) {
  unsigned begin = 0;
  for (int p = 0; p < all.count; ++p) {
    if (unit < all.end[p]) {
      const Parcel& parcel = all.parcel[p];
      const unsigned size = all.wide[p] ? 16 : 4;
      const unsigned per_row = static_cast<unsigned>(parcel.row_bytes) / size;
      const unsigned row = (unit - begin) / per_row, at = (unit - begin) % per_row * size;
      return {static_cast<char*>(parcel.to) + row * parcel.to_pitch + at,
              static_cast<const char*>(parcel.from) + row * parcel.from_pitch + at, all.wide[p]};
    }
    begin = all.end[p];
  }
  return {};
}

// The host changes what it sends between steps: nothing of it may come from a cache.
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
__global__ void __launch_bounds__(kThreads) deliver_kernel(const __grid_constant__ Parcels all) {
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

bool wide(const Parcel& p) {
  return p.row_bytes % 16 == 0 && is_aligned(p.to, p.to_pitch) && is_aligned(p.from, p.from_pitch);
}

template <bool ahead>
void start(std::span<const Parcel> parcels, cudaStream_t stream) {
  Parcels all{};
  int64_t units = 0;
  for (const Parcel& p : parcels) {
    if (p.rows == 0 || p.row_bytes == 0) continue;
    const bool is_wide = wide(p);
    units += p.rows * p.row_bytes / (is_wide ? 16 : 4);
    all.parcel[all.count] = p;
    all.wide[all.count] = is_wide;
    all.end[all.count++] = static_cast<unsigned>(units);
  }
  if (all.count == 0) return;
  const int64_t blocks = std::clamp<int64_t>((units + kThreads - 1) / kThreads, 1, kMostBlocks);
  launch(deliver_kernel<ahead>,
         {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads), .stream = stream},
         all);
}

}  // namespace

void deliver(std::span<const Parcel> parcels, cudaStream_t stream) {
  for (size_t i = 0; i < parcels.size(); i += kMost)
    start<true>(parcels.subspan(i, std::min<size_t>(kMost, parcels.size() - i)), stream);
}

void fetch(const Parcel& parcel, cudaStream_t stream) { start<false>({&parcel, 1}, stream); }

}  // namespace skiff::cuda
