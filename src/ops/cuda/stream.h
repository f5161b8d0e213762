// ops/cuda/stream.h -- the stream of one device, with marks (events) and recordings (graphs).
// Driven by one thread.
#pragma once
#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>

#include "ops/cuda/starts.cuh"
#include "ops/replay_key.h"

namespace skiff::cuda {

// Kernels before and behind the work of a recorded step whose arguments differ from replay to
// replay. Each start calls both in this order; they start the same kernels each time.
struct StepEnds {
  std::function<void(Starts&)> before = [](Starts&) {}, behind = [](Starts&) {};
};

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
  uint64_t stamp() { return stamp(stream_); }
  uint64_t stamp(cudaStream_t at);  // in another stream of the device
  double seconds_between(uint64_t from, uint64_t to) const;
  // Does what Ops::replay says. The first call runs the work without capture, so that one-time work
  // (loading kernels, choosing algorithms, filling tables) is done; the second call captures a
  // graph. Where the ends start another number of kernels than were recorded, all is done without
  // the graph.
  void replay(const ReplayKey& key, const std::function<void()>& work, const StepEnds& ends = {});
  // Does the work and its ends without recording.
  void run(const std::function<void()>& work, const StepEnds& ends);

 private:
  struct Recording {
    bool warm = false;
    cudaGraphExec_t graph = nullptr;
    cudaGraph_t form = nullptr;  // kept where it has places, which are a part of it
    Places places;               // where the kernels of the ends are
  };
  void record(Recording& recording, const std::function<void()>& work, const StepEnds& ends);
  static bool adopts(const Recording& recording, const StepEnds& ends);

  static constexpr uint64_t kEvents = 64, kStamps = 16;
  cudaStream_t stream_ = nullptr;
  std::array<cudaEvent_t, kEvents> events_{};
  std::array<cudaEvent_t, kStamps> stamp_events_{};
  uint64_t marks_ = 0, done_ = 0, stamps_ = 0;
  std::map<ReplayKey, Recording> recordings_;
};

}  // namespace skiff::cuda
