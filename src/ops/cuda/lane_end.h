// ops/cuda/lane_end.h -- the end of a stream's work, as another stream waits for it.
//
// A kernel that waits for an event of another stream starts when that and its own stream's last
// kernel have ended, even if that one would let it start early. What is recorded here is a
// programmatic event (CUDA runtime, cudaLaunchAttributeProgrammaticEvent): the kernel may start as
// early as its own stream lets it, and waits for both in griddepcontrol.wait.
#pragma once
#include <cuda_runtime.h>

namespace skiff::cuda {

// Records `ended`, an event without timing, behind all that `stream` has: on Hopper and later,
// where kernels overlap. Whoever waits for it has all of that complete, and visible behind
// griddepcontrol.wait.
void record_end(cudaEvent_t ended, cudaStream_t stream);

}  // namespace skiff::cuda
