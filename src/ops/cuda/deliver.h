// ops/cuda/deliver.h -- small copies between page-locked host memory and the device by a kernel. A
// cudaMemcpyAsync between kernels costs several microseconds to switch to a copy engine and back; a
// kernel reads and writes page-locked memory in place, and makes any number of copies in one
// launch. The launch depends on sizes and addresses: in a recorded step it gets its arguments anew
// at each replay (starts.cuh).
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <span>

namespace skiff::cuda {

class Starts;

// The host may begin so many steps and passes of a drafter before the first of them is complete:
// what it makes for them in page-locked memory has as many places, used in turns.
constexpr int kPlansAhead = 8;

// A strided copy of less than 4 GB. Addresses, sizes and pitches are multiples of 4 bytes.
struct SmallCopy {
  void* to = nullptr;
  const void* from = nullptr;
  int64_t rows = 0, row_bytes = 0;
  int64_t to_pitch = 0, from_pitch = 0;  // bytes from one row to the next
};

// Copies to the device from page-locked memory that the host has filled. The source is loaded
// before griddepcontrol.wait.
void deliver(std::span<const SmallCopy> copies, Starts& starts);
void deliver(std::span<const SmallCopy> copies, cudaStream_t stream);
// Copies from the device to page-locked memory.
void fetch(std::span<const SmallCopy> copies, Starts& starts);
void fetch(const SmallCopy& copy, cudaStream_t stream);

}  // namespace skiff::cuda
