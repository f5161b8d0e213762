#include "ops/cuda/quant/atom_split.cuh"

namespace skiff::cuda::atoms {

template void allow_split_kernels<Codes::kFour>();
template void start_split_of<Codes::kFour>(const SplitLaunch&, const CUtensorMap&,
                                           const streamed::StreamArgs&, const AtomArgs&);

}  // namespace skiff::cuda::atoms
