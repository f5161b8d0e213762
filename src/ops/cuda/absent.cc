// The whole backend where CUDA is not built.
#include "base/load_error.h"
#include "ops/ops.h"

namespace skiff {

std::unique_ptr<Ops> make_cuda_ops(const CudaOptions&) {
  fail_load("this build has no CUDA backend: build one with `make build PRESET=cuda`");
}

}  // namespace skiff
