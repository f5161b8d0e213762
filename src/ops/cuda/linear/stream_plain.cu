#include "ops/cuda/linear/stream_start.cuh"

namespace skiff::cuda::streamed {

template void allow_stream_kernels<false>();
template void start_stream<false>(int, const Launch&, const CUtensorMap&, const CUtensorMap&,
                                  const StreamArgs&);

}  // namespace skiff::cuda::streamed
