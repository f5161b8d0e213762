#include "ops/cuda/quant/channel_products.h"

#include <algorithm>
#include <vector>

#include "ops/cuda/align.h"
#include "ops/cuda/check.h"
#include "ops/cuda/device_facts.h"
#include "ops/cuda/linear/shape.h"
#include "ops/cuda/quant/channel_call.h"
#include "ops/cuda/quant/direct_call.h"

namespace skiff::cuda {
struct ChannelProducts::Call {
  Tensor out, x;
  const Linear& w;
  std::optional<RoundedRows> rounded;
  bool gated = false;
  Act act = Act::kSilu;
};

ChannelProducts::ChannelProducts(const InputScratch& inputs, void* workspace,
                                 const ChannelOptions& options)
    : inputs_(inputs),
      workspace_(workspace),
      options_(options),
      runs_(!options.portable && current_runs_hopper_kernels()),
      multiprocessors_(attribute(cudaDevAttrMultiProcessorCount)) {
  check_lt(cublasLtCreate(&handle_), "starting");
  if (runs_) channels::allow_channel_kernels();
}
ChannelProducts::~ChannelProducts() { cublasLtDestroy(handle_); }

bool ChannelProducts::takes(const Tensor& x, const Linear& w) const {
  return runs_ && is_float8_channels(w) && rounds_rows(x);
}

// Returns whether a few rows meet weights that need no ring which a block shares.
bool ChannelProducts::is_direct(const Tensor& x, const Linear& w) const {
  return !options_.one_order && x.rows() <= kMostDirectRows && direct::takes(w, x.rows()) &&
         direct::fits(x.rows(), x.cols());
}

bool ChannelProducts::triggers_late(const Tensor& x, const Linear& w) const {
  return takes(x, w) && is_direct(x, w);
}

RoundedRows ChannelProducts::rounded_rows(const Call& call, cudaStream_t stream) const {
  return call.rounded ? *call.rounded : round_rows(inputs_, call.x, stream);
}

void ChannelProducts::run_direct(const Call& call, cudaStream_t stream) const {
  RoundedRows rounded = {.x = call.x};
  if (!direct::rounds(call.w, call.x.rows())) rounded = rounded_rows(call, stream);
  const direct::DirectArgs args = {.x = rounded.x.data,
                                   .x_stride = rounded.x.row_stride,
                                   .rows = static_cast<int>(call.x.rows()),
                                   .in = static_cast<int>(call.x.cols()),
                                   .one_row = call.x.rows() == 1,
                                   .out = call.out.data,
                                   .out_stride = call.out.row_stride,
                                   .out_f32 = call.out.dtype == DType::kF32,
                                   .features = static_cast<int>(call.out.cols()),
                                   .bias = call.w.bias ? call.w.bias.as<float>() : nullptr,
                                   .act = call.act};
  direct::start_direct(call.w, args, call.gated, {.x = rounded.x, .chunk_scales = rounded.scales},
                       multiprocessors_, stream);
}

void ChannelProducts::run(const Call& call, cudaStream_t stream) const {
  if (is_direct(call.x, call.w)) return run_direct(call, stream);
  const RoundedRows rounded = rounded_rows(call, stream);
  channels::start_channels({.out = call.out, .x = rounded, .gated = call.gated, .act = call.act},
                           call.w,
                           channels::channel_shape(call.x.rows(), features(call.w), inputs(call.w),
                                                   multiprocessors_, options_.one_order),
                           stream);
}

std::optional<ChannelProducts::Algorithm> ChannelProducts::choose(const LtGemm& gemm,
                                                                  const ProductKey& key) {
  if (const auto known = chosen_.find(key); known != chosen_.end()) return known->second;
  const std::vector<LtGemm::Proposal> proposed = gemm.propose(1);
  std::optional<Algorithm>& choice = chosen_[key];
  if (!proposed.empty()) choice = proposed.front().algorithm;
  return choice;
}

// Returns false, with nothing started, where cuBLASLt has no algorithm.
bool ChannelProducts::library_product(const Call& call, cudaStream_t stream) {
  if (call.w.bias || !is_aligned(call.out)) return false;
  RoundedRows rounded = {.x = call.x};
  rounded.x.dtype = DType::kF8E4M3;
  rounded.x.row_stride = call.x.cols();
  const ProductKey key = key_of(call.out, rounded.x);
  if (const auto known = chosen_.find(key); known != chosen_.end() && !known->second) return false;
  rounded = rounded_rows(call, stream);
  const LtGemm gemm(handle_, call.out, rounded.x, call.w.weight,
                    ChannelScales{call.w.scale.as<float>(), rounded.scales});
  const auto algorithm = choose(gemm, key);
  return algorithm && gemm.run(*algorithm, workspace_, stream);
}

void ChannelProducts::product(Tensor out, Tensor x, const Linear& w,
                              const std::optional<RoundedRows>& rounded, cudaStream_t stream) {
  const int64_t most = rounded_rows_that_fit(inputs_.bytes, x.cols());
  for (int64_t r = 0, n = 0; r < out.rows(); r += n) {
    n = std::min(most, out.rows() - r);
    Call call = {.out = out.row_range(r, n), .x = x.row_range(r, n), .w = w};
    if (n == out.rows()) call.rounded = rounded;
    const bool library = !options_.one_order && n >= options_.library_from;
    if (!library || !library_product(call, stream)) run(call, stream);
  }
}

bool ChannelProducts::gated_product(Tensor out, Tensor x, const Linear& w, Act act,
                                    const std::optional<RoundedRows>& rounded,
                                    cudaStream_t stream) {
  if (w.bias || options_.one_order || out.rows() == 0 || !takes(x, w) ||
      out.rows() >= options_.library_from || rounded_rows_bytes(x.rows(), x.cols()) > inputs_.bytes)
    return false;
  run({.out = out, .x = x, .w = w, .rounded = rounded, .gated = true, .act = act}, stream);
  return true;
}

}  // namespace skiff::cuda
