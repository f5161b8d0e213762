// ops/cuda/copy_stream.h -- copies beside the kernels of a device, in a stream of their own. Driven
// by the thread that drives the other stream.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "ops/batch.h"
#include "ops/cuda/stream.h"

namespace skiff::cuda {

class CopyStream {
 public:
  // `computes`, which must outlive this object, is the stream of the kernels.
  explicit CopyStream(Stream& computes);
  ~CopyStream();
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  // These do what Ops::copy_beside, Ops::after and Ops::wait_copies say; all operations so far have
  // been started.
  CopiesBeside copy(std::span<const Arrival> copies);
  void after(uint64_t number);
  void wait(uint64_t number) const;

 private:
  cudaEvent_t end_of(uint64_t number) const;

  static constexpr uint64_t kKept = 8;
  Stream& computes_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;  // the operations before the last copies
  std::array<cudaEvent_t, kKept> ends_{};
  uint64_t copies_ = 0;
};

}  // namespace skiff::cuda
