#include "ops/cuda/quant/atom_kernel.cuh"

namespace skiff::cuda::atoms {

template void allow_atom_kernels<Codes::kFour, 1>();
template void start_atoms_of<Codes::kFour, 1>(const AtomLaunch&, const CUtensorMap&,
                                              const streamed::StreamArgs&, const AtomArgs&);

}  // namespace skiff::cuda::atoms
