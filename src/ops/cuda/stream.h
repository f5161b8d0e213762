// ops/cuda/stream.h -- the stream of one device, with marks (events) and recordings (graphs).
// Driven by one thread.
#pragma once
#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>

#include "ops/replay_key.h"

namespace skiff::cuda {

class Stream {
 public:
  explicit Stream(int device);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }
  // Both do what Ops::mark and Ops::wait say. Events are reused: waiting for an old mark waits for
  // a newer one.
  uint64_t mark();
  void wait(uint64_t mark);
  // Both do what Ops::stamp and Ops::seconds_between say.
  uint64_t stamp();
  double seconds_between(uint64_t from, uint64_t to) const;
  // Does what Ops::replay says. The first call runs the work without capture, so that one-time work
  // (loading kernels, choosing algorithms, filling tables) is done; the second call captures a
  // graph.
  void replay(const ReplayKey& key, const std::function<void()>& work);

 private:
  struct Recording {
    bool warm = false;
    cudaGraphExec_t graph = nullptr;
  };
  cudaGraphExec_t record(const std::function<void()>& work);

  static constexpr uint64_t kEvents = 64, kStamps = 16;
  cudaStream_t stream_ = nullptr;
  std::array<cudaEvent_t, kEvents> events_{};
  std::array<cudaEvent_t, kStamps> stamp_events_{};
  uint64_t marks_ = 0, done_ = 0, stamps_ = 0;
  std::map<ReplayKey, Recording> recordings_;
};

}  // namespace skiff::cuda
