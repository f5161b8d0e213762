// ops/cuda/starts.cuh -- kernels whose arguments differ from step to step, also where they are part
// of a recorded step.
//
// What starts such kernels is called for each step, with a Starts that says what becomes of them:
// they are started on a stream; or the stream is being recorded, and their places are noted; or
// they are given to a recorded step, in the order in which their places were noted.
#pragma once
#include <cuda_runtime.h>

#include <type_traits>
#include <vector>

#include "ops/cuda/launch.cuh"

namespace skiff::cuda {

using Places = std::vector<cudaGraphNode_t>;  // kernels in a recorded step

class Starts {
 public:
  explicit Starts(cudaStream_t stream) : stream_(stream) {}
  // The stream is being recorded; the places are appended to `places`.
  Starts(cudaStream_t stream, Places& places) : stream_(stream), noted_(&places) {}
  // Launches of `graph` from now on have the arguments. Those before keep theirs.
  Starts(cudaGraphExec_t graph, const Places& places) : graph_(graph), places_(&places) {}

  template <class... P, class... A>
  void start(void (*kernel)(P...), dim3 grid, dim3 block, const A&... args) {
    static_assert((std::is_same_v<P, A> && ...), "a recorded step takes arguments as they are");
    if (graph_ != nullptr) {
      void* arguments[] = {const_cast<void*>(static_cast<const void*>(&args))...};
      return replace(reinterpret_cast<void*>(kernel), grid, block, arguments);
    }
    launch(kernel, {.grid = grid, .block = block, .stream = stream_}, args...);
    if (noted_ != nullptr) note();
  }
  // Returns whether as many kernels were started as there are places.
  bool complete() const { return next_ == places_->size(); }

 private:
  void note();
  void replace(void* kernel, dim3 grid, dim3 block, void** arguments);

  cudaStream_t stream_ = nullptr;
  Places* noted_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
  const Places* places_ = nullptr;
  size_t next_ = 0;  // kernels that were given to the graph
};

}  // namespace skiff::cuda
