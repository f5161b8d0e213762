// The whole backend where CUDA is not built.
#include "base/load_error.h"
#include "ops/ops.h"
#include "ops/read_bandwidth.h"

namespace skiff {

namespace {

constexpr const char* kAbsent =
    "this build has no CUDA backend: build one with `make build PRESET=cuda`";

}  // namespace

std::unique_ptr<Ops> make_cuda_ops(const CudaOptions&) { fail_load("{}", kAbsent); }
double device_read_bandwidth(Device) { fail_load("{}", kAbsent); }

}  // namespace skiff
