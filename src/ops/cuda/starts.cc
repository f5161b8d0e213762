#include "ops/cuda/starts.cuh"
#include "base/check.h"

namespace skiff::cuda {

// What the stream would wait for next is what was started last.
void Starts::note() {
  cudaStreamCaptureStatus status{};
  const cudaGraphNode_t* last = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t count = 0;
  check(cudaStreamGetCaptureInfo(stream_, &status, nullptr, nullptr, &last, &edges, &count),
        "asking for a place in a recorded step");
  SKIFF_CHECK(status == cudaStreamCaptureStatusActive && count == 1);
  noted_->push_back(*last);
}

void Starts::replace(void* kernel, dim3 grid, dim3 block, void** arguments) {
  if (next_++ >= places_->size()) return;
  cudaKernelNodeParams params{};
  params.func = kernel;
  params.gridDim = grid;
  params.blockDim = block;
  params.kernelParams = arguments;
  check(cudaGraphExecKernelNodeSetParams(graph_, (*places_)[next_ - 1], &params),
        "giving arguments to a recorded step");
}

}  // namespace skiff::cuda
