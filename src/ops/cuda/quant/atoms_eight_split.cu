#include "ops/cuda/quant/atom_split.cuh"

namespace skiff::cuda::atoms {

template void allow_split_kernels<Codes::kEight>();
template void start_split_of<Codes::kEight>(const SplitLaunch&, const CUtensorMap&,
                                            const streamed::StreamArgs&, const AtomArgs&);

ClusterPlaces cluster_places() {
  ClusterPlaces places = {};
  using Ring = AtomRing<Codes::kEight, 0, 128, 1, 1>;
  const auto kernel = split_kernel<Codes::kEight, 128, false, 1>;
  for (int splits = 1; splits <= kMostSplits; ++splits) {
    cudaLaunchAttribute attribute = {.id = cudaLaunchAttributeClusterDimension};
    attribute.val.clusterDim = {static_cast<unsigned>(splits), 1, 1};
    const cudaLaunchConfig_t config = {.gridDim = static_cast<unsigned>(splits),
                                       .blockDim = static_cast<unsigned>(atom_threads(128)),
                                       .dynamicSmemBytes = Ring::kSharedBytes,
                                       .stream = nullptr,
                                       .attrs = &attribute,
                                       .numAttrs = 1};
    int& fit = places[static_cast<size_t>(splits)];
    if (cudaOccupancyMaxActiveClusters(&fit, kernel, &config) == cudaSuccess) continue;
    fit = 0;  // The device has no clusters of so many blocks.
    cudaGetLastError();
  }
  return places;
}

}  // namespace skiff::cuda::atoms
