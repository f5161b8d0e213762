#include "ops/cuda/lane_end.h"

#include "ops/cuda/launch.cuh"

namespace skiff::cuda {
namespace {

// Its only block triggers the event when it ends, and what came before is complete by then.
__global__ void end_kernel() { wait_for_previous(); }

}  // namespace

void record_end(cudaEvent_t ended, cudaStream_t stream) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticEvent;
  attributes[1].val.programmaticEvent.event = ended;
  cudaLaunchConfig_t config = {};
  config.gridDim = 1;
  config.blockDim = 32;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  check(cudaLaunchKernelEx(&config, end_kernel), "marking a lane's end");
}

}  // namespace skiff::cuda
