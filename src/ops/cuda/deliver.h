// ops/cuda/deliver.h -- few bytes between the host's page-locked memory and the device, moved by a
// kernel in place of copies. A copy in a stream of kernels costs two changes of engine, several
// microseconds each time; a kernel reads and writes such memory in place, and any number of pieces
// with one launch. It is in no captured graph: the launch depends on sizes.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <span>

namespace skiff::cuda {

// Rows of bytes, less than 4 GB in all; everything is a multiple of 4. Rows may lie apart.
struct Parcel {
  void* to = nullptr;
  const void* from = nullptr;
  int64_t rows = 0, row_bytes = 0;
  int64_t to_pitch = 0, from_pitch = 0;  // bytes from one row to the next
};

// To the device from page-locked memory, which the host has filled: what is read is fetched while
// the kernel before this one still runs. What was written before may be overwritten then.
void deliver(std::span<const Parcel> parcels, cudaStream_t stream);
// To page-locked memory from the device.
void fetch(const Parcel& parcel, cudaStream_t stream);

}  // namespace skiff::cuda
