#include "ops/cuda/copy_stream.h"

#include "base/check.h"
#include "ops/cuda/check.h"
#include "ops/cuda/tensor_copies.h"

namespace skiff::cuda {

CopyStream::CopyStream(Stream& computes) : computes_(computes) {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream of copies");
  check(cudaEventCreateWithFlags(&begin_, cudaEventDisableTiming), "making an event");
  for (cudaEvent_t& event : ends_)
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
}

CopyStream::~CopyStream() {
  cudaStreamSynchronize(stream_);
  for (cudaEvent_t event : ends_) cudaEventDestroy(event);
  cudaEventDestroy(begin_);
  cudaStreamDestroy(stream_);
}

CopiesBeside CopyStream::copy(std::span<const Arrival> copies) {
  check(cudaEventRecord(begin_, computes_.get()), "marking where copies begin");
  check(cudaStreamWaitEvent(stream_, begin_), "having copies wait for operations");
  CopiesBeside out{.number = ++copies_, .begin = computes_.stamp(stream_)};
  for (const Arrival& each : copies) copy_plain(each.to, each.from, stream_);
  out.end = computes_.stamp(stream_);
  check(cudaEventRecord(end_of(out.number), stream_), "marking where copies end");
  return out;
}

cudaEvent_t CopyStream::end_of(uint64_t number) const {
  SKIFF_CHECK(number > 0 && number <= copies_ && copies_ - number < kKept, "copies {} of {}",
              number, copies_);
  return ends_[number % kKept];
}

void CopyStream::after(uint64_t number) {
  check(cudaStreamWaitEvent(computes_.get(), end_of(number)), "having operations wait for copies");
}

void CopyStream::wait(uint64_t number) const {
  check(cudaEventSynchronize(end_of(number)), "waiting for copies");
}

}  // namespace skiff::cuda
