#include "quantize/tap_ops.h"

#include <algorithm>
#include <cstring>

namespace skiff::quantize {
namespace {

// What one expert's gated product takes from an arena.
size_t scratch_bytes_of(const ModelSpec& layer, int max_rows, const Ops& ops) {
  size_t most = 64;
  for (const Layer& l : layer.layers)
    if (const auto* moe = std::get_if<Moe>(&l.ffn))
      most = std::max(most, ops.arena_bytes(Dense{.width = moe->width, .act = moe->act},
                                            layer.hidden, max_rows, DType::kF32));
  return most;
}

}  // namespace

TapOps::TapOps(Ops& base, const ModelSpec& layer, int max_rows)
    : ForwardOps(base), scratch_(Buffer(Device{}, scratch_bytes_of(layer, max_rows, base))) {}

void TapOps::set_experts(const Linear& stack, std::vector<Linear> experts) {
  experts_[&stack] = std::move(experts);
}

void TapOps::set_input(const Linear& weight, const RoundedInput& input) {
  inputs_[&weight] = input;
}

void TapOps::begin(Matrix* residual, const Norm* last_norm, const Linear* stop_after, Watch watch,
                   WatchKv watch_kv) {
  residual_ = residual;
  last_norm_ = last_norm;
  stop_after_ = stop_after;
  watch_ = std::move(watch);
  watch_kv_ = std::move(watch_kv);
  stopped_ = false;
}

Tensor TapOps::seen(const Linear& weight, Tensor x, int64_t expert) {
  SKIFF_CHECK(x.contiguous(), "strided input of a linear layer");
  if (watch_) watch_({&weight, expert}, x.as<float>(), x.rows());
  const auto input = inputs_.find(&weight);
  if (input == inputs_.end()) return x;
  rounded_.assign(x.as<float>(), x.as<float>() + x.elements());
  round_input(rounded_.data(), x.rows(), x.cols(), input->second);
  return host_tensor(rounded_.data(), DType::kF32, {x.rows(), x.cols()});
}

void TapOps::embed(Tensor out, Tensor /*table*/, Tensor /*ids*/) {
  SKIFF_CHECK_EQ(out.elements(), residual_->rows * residual_->cols);
  std::ranges::copy(residual_->values, out.as<float>());
}

void TapOps::add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm) {
  if (stopped_) return;
  base_.add_norm(out, residual, delta, norm);
  if (&norm == last_norm_)
    std::copy_n(residual.as<float>(), residual.elements(), residual_->values.begin());
}

void TapOps::linear(Tensor out, Tensor x, const Linear& w) {
  if (stopped_ || x.rows() == 0) return;  // nobody asks for logits
  const Tensor input = seen(w, x);
  stopped_ = &w == stop_after_;
  if (!stopped_) base_.linear(out, input, w);
}

void TapOps::gqa_project(Tensor qkv, Tensor x, const Linear& w, const Norm& q, const Norm& k,
                         const Gqa& spec, const RaggedBatch& batch, const KvLayer& kv) {
  if (stopped_) return;
  const Tensor input = seen(w, x);
  stopped_ = &w == stop_after_;
  if (stopped_) return;
  base_.gqa_project(qkv, input, w, q, k, spec, batch, kv);
  if (!watch_kv_) return;
  const int64_t q_cols = int64_t{spec.heads} * spec.head_dim;
  const int64_t kv_cols = int64_t{spec.kv_heads} * spec.head_dim;
  watch_kv_(qkv.col_range(q_cols, kv_cols), qkv.col_range(q_cols + kv_cols, kv_cols));
}

void TapOps::gqa_attend(Tensor out, Tensor q, const Gqa& spec, const RaggedBatch& batch,
                        const KvLayer& kv) {
  if (!stopped_) base_.gqa_attend(out, q, spec, batch, kv);
}

void TapOps::mla_store(Tensor q, Tensor kv, const Norm& norm, const Mla& spec,
                       const RaggedBatch& batch, const KvLayer& cache) {
  if (!stopped_) base_.mla_store(q, kv, norm, spec, batch, cache);
}

void TapOps::latent_attend(Tensor values, Tensor q, const Linear& absorb, const Linear& value,
                           const Mla& spec, const RaggedBatch& batch, const KvLayer& cache,
                           Arena& arena) {
  if (!stopped_) base_.latent_attend(values, q, absorb, value, spec, batch, cache, arena);
}

void TapOps::gated_linear(Tensor out, Tensor x, const Linear& w, Act act, Arena& arena) {
  if (stopped_) return;
  const Tensor input = seen(w, x);
  stopped_ = &w == stop_after_;
  if (!stopped_) base_.gated_linear(out, input, w, act, arena);
}

Routing TapOps::route(Tensor logits, Tensor bias, const Router& router, Arena& arena) {
  return stopped_ ? Routing{} : base_.route(logits, bias, router, arena);
}

void TapOps::experts(Tensor out, Tensor x, const Routing& routing, const Linear& gate_up,
                     const Linear& down, Act act, Arena& /*arena*/) {
  if (stopped_) return;
  for (int64_t r = 0; r < out.rows(); ++r) std::fill_n(out.row<float>(r), out.cols(), 0.0f);
  for (int64_t e = 0; e < gate_up.experts; ++e) expert(gate_up, down, e, routing, act, x, out);
  stopped_ = &gate_up == stop_after_ || &down == stop_after_;
}

void TapOps::expert(const Linear& gate_up, const Linear& down, int64_t e, const Routing& routing,
                    Act act, Tensor x, Tensor out) {
  const auto* start = routing.expert_start.as<int32_t>();
  const auto* copies = routing.order.as<int32_t>() + start[e];
  const auto* weights = routing.weight.as<float>();
  const int64_t rows = start[e + 1] - start[e], per_token = routing.expert.cols();
  if (rows == 0) return;
  const Linear& up = experts_.at(&gate_up).at(static_cast<size_t>(e));
  const Linear& back = experts_.at(&down).at(static_cast<size_t>(e));
  Matrix in(rows, x.cols()), mid(rows, up.weight.dim[0] / 2), result(rows, out.cols());
  for (int64_t r = 0; r < rows; ++r)
    std::copy_n(x.row<float>(copies[r] / per_token), x.cols(), in.row(r));
  const Tensor input = seen(gate_up, in.tensor(), e);
  if (&gate_up == stop_after_) return;
  scratch_.reset();
  base_.gated_linear(mid.tensor(), input, up, act, scratch_);
  const Tensor middle = seen(down, mid.tensor(), e);
  if (&down == stop_after_) return;
  base_.linear(result.tensor(), middle, back);
  base_.wait(base_.mark());
  for (int64_t r = 0; r < rows; ++r) {
    float* to = out.row<float>(copies[r] / per_token);
    for (int64_t c = 0; c < out.cols(); ++c) to[c] += weights[copies[r]] * result.row(r)[c];
  }
}

void TapOps::add(Tensor out, Tensor x) {
  if (!stopped_) base_.add(out, x);
}

void TapOps::gather_rows(Tensor out, Tensor x, Tensor rows) {
  if (!stopped_ && out.rows() > 0) base_.gather_rows(out, x, rows);
}

}  // namespace skiff::quantize
