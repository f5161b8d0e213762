// ops/cuda/quant/channel_products.h -- GEMMs by weights in float8_channels.h: a few rows, which
// each warp multiplies by weights that it brings to itself (direct_args.h), more of them by a
// kernel of ours (channel_shape.h), and many by cuBLASLt.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <map>
#include <optional>

#include "arch/spec.h"
#include "ops/cuda/linear/lt_gemm.h"
#include "ops/cuda/linear/tuned.h"
#include "ops/cuda/quant/channel_shape.h"
#include "ops/cuda/quant/round_rows.h"
#include "weights/linear.h"

namespace skiff::cuda {

// Rows that are multiplied by the kernel whose warps bring their own weights. From two rows on the
// kernel with a shared ring is faster, rounding included (docs/performance_cuda_products.md).
constexpr int kMostDirectRows = 1;

struct ChannelOptions {
  bool portable = false;   // takes nothing, as on a device before Hopper
  bool one_order = false;  // no result depends on the number of rows, bit for bit
  int64_t library_from = channels::kMostRows + 1;  // rows; without one_order
};

// Allocates nothing and waits for nothing, so steps can be captured. Driven by one thread.
class ChannelProducts {
 public:
  // `inputs`: scratch for rounded rows. `workspace`: LtGemm::kScaledWorkspaceBytes for cuBLASLt.
  // Both are used in one stream only.
  ChannelProducts(const InputScratch& inputs, void* workspace, const ChannelOptions& options);
  ~ChannelProducts();
  ChannelProducts(const ChannelProducts&) = delete;
  ChannelProducts& operator=(const ChannelProducts&) = delete;

  bool takes(const Tensor& x, const Linear& w) const;
  // out[rows, out] = x[rows, in] * w^T + bias, out bf16 or f32. `rounded`: x, if round_rows() or
  // what round_ahead.h has was called for it on the same scratch.
  void product(Tensor out, Tensor x, const Linear& w, const std::optional<RoundedRows>& rounded,
               cudaStream_t stream);
  // out = act(gate) * up, (gate, up) = x * w^T, w [2 * width, in] with the gate first. Returns
  // false, with nothing started, where GEMM and gate are faster apart.
  bool gated_product(Tensor out, Tensor x, const Linear& w, Act act,
                     const std::optional<RoundedRows>& rounded, cudaStream_t stream);
  // StreamedProducts::triggers_late() of these kernels.
  bool triggers_late(const Tensor& x, const Linear& w) const;

 private:
  using Algorithm = cublasLtMatmulAlgo_t;
  struct Call;
  bool is_direct(const Tensor& x, const Linear& w) const;
  RoundedRows rounded_rows(const Call& call, cudaStream_t stream) const;
  void run_direct(const Call& call, cudaStream_t stream) const;
  void run(const Call& call, cudaStream_t stream) const;
  bool library_product(const Call& call, cudaStream_t stream);
  std::optional<Algorithm> choose(const LtGemm& gemm, const ProductKey& key);

  InputScratch inputs_;
  void* workspace_;
  ChannelOptions options_;
  bool runs_;
  int multiprocessors_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<ProductKey, std::optional<Algorithm>> chosen_;
};

}  // namespace skiff::cuda
