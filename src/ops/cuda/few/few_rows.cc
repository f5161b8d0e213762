#include "ops/cuda/few/few_rows.h"

#include <algorithm>

#include "ops/cuda/check.h"
#include "ops/cuda/moe/route.h"

namespace skiff::cuda {
namespace {

constexpr size_t kCounterBytes = kSegmentHandOvers * kCounterStride * sizeof(unsigned);
constexpr int kMostXBytes = 120 << 10;  // so that the ring keeps as much again
constexpr int kExpertSteps = 4;
// Of each block: weights on their way at a time, and those that are fetched for the next segment.
constexpr int kOnWayBytes = 64 << 10, kSoonBytes = 128 << 10;

bool on(const Tensor& t, int64_t to) {
  const auto element = static_cast<int64_t>(bytes(t.dtype));
  return reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(to) == 0 &&
         t.row_stride * element % to == 0;
}

bool is_stack(const Tensor& w, int64_t experts, int64_t out, int64_t in) {
  return w.dtype == DType::kBF16 && w.contiguous() && on(w, 16) && w.dim[0] == experts &&
         w.dim[1] == out && w.dim[2] == in;
}

int item_units(int units) {
  if (units <= kMostUnits) return units;
  const int items = (units + 7) / 8;
  return (units + items - 1) / items;
}

const __nv_bfloat16* weights_of(const Linear& w) {
  return static_cast<const __nv_bfloat16*>(w.weight.data);
}
const float* floats_of(const Tensor& t) { return t ? t.as<float>() : nullptr; }

}  // namespace

FewRows::FewRows(void* scratch) : scratch_(scratch) {
  if (attribute(cudaDevAttrComputeCapabilityMajor) != 9) return;
  blocks_ = attribute(cudaDevAttrMultiProcessorCount);
  allow_segments();
  check(cudaMemset(scratch_, 0, kCounterBytes), "clearing the counters of hand-overs");
}

bool FewRows::takes_rows(const Tensor& x) const {
  return blocks_ > 0 && x.dtype == DType::kBF16 && x.rows() >= 1 && x.rows() <= kSegmentRows &&
         (empty() || x.rows() == segment_.rows) && x.cols() % kUnit == 0 && on(x, 16) &&
         kSegmentRows * x.cols() * 2 <= kMostXBytes;
}

SegmentShares FewRows::shares(int64_t things) const {
  return {static_cast<int>(things / blocks_), static_cast<int>(things % blocks_)};
}

SegmentStep& FewRows::add_step(const SegmentStep& step) {
  SKIFF_CHECK(segment_.steps < kSegmentSteps);
  routed_ = nullptr;
  segment_.step[segment_.steps++] = step;
  const int end = step.x + kSegmentRows * step.cols;
  segment_.x_bytes = std::max(segment_.x_bytes, 2 * end);
  return last();
}

// Whether a block that has come here has waited for all blocks to end that step.
bool FewRows::handed_over_since(int step) const {
  for (int i = step + 1; i < segment_.steps; ++i) {
    for (int from = step; from < i; ++from) {
      if (segment_.step[i].wait >= 0 && segment_.step[from].arrive == segment_.step[i].wait)
        return true;
    }
  }
  return false;
}

void* FewRows::take(int64_t bytes) {
  void* at = static_cast<std::byte*>(scratch_) + kCounterBytes + used_;
  used_ += static_cast<size_t>((bytes + 255) / 256 * 256);
  SKIFF_CHECK(kCounterBytes + used_ <= kScratchBytes, "{} bytes of scratch", used_);
  return at;
}

int FewRows::hand_over(int step) {
  int& arrive = segment_.step[step].arrive;
  if (arrive < 0) arrive = hand_overs_++;
  return arrive;
}

void* FewRows::copy_of(int step) {
  SegmentStep& s = segment_.step[step];
  if (s.combined) return s.combined_copy;
  if (!s.product.copy)
    s.product.copy = take(int64_t{segment_.rows} * s.product.features * (s.product.f32 ? 4 : 2));
  return s.product.copy;
}

// A step that has x as its input and no product yet; null: x comes from elsewhere.
SegmentStep* FewRows::step_that_has(const Tensor& x) {
  if (segment_.steps == kSegmentSteps) return nullptr;
  const int cols = static_cast<int>(x.cols());
  if (empty()) {
    segment_.rows = static_cast<int>(x.rows());
    return &add_step({.input = SegmentInput::kRows,
                      .cols = cols,
                      .rows = static_cast<const __nv_bfloat16*>(x.data),
                      .rows_stride = x.row_stride});
  }
  if (x_.is(x) && segment_.step[x_.step].cols == cols) {
    if (x_.step + 1 == segment_.steps && !last().product.weight) return &last();
    return &add_step({});
  }
  if (!out_.is(x) || out_cols_ != cols || segment_.step[out_.step].product.f32) return nullptr;
  x_ = {};
  return &add_step({.wait = hand_over(out_.step),
                    .input = SegmentInput::kRows,
                    .cols = cols,
                    .rows = static_cast<const __nv_bfloat16*>(copy_of(out_.step)),
                    .rows_stride = cols});
}

bool FewRows::product(const Tensor& out, const Tensor& x, const Linear& w, bool gated, Act act) {
  if (!takes_rows(x) || w.scheme != Scheme::kPlain || w.weight.dtype != DType::kBF16 ||
      w.weight.dim[2] > 1 || !w.weight.contiguous() || !on(w.weight, 16) ||
      (out.dtype != DType::kBF16 && out.dtype != DType::kF32))
    return false;
  SKIFF_CHECK_EQ(w.weight.cols(), x.cols());
  SKIFF_CHECK_EQ(w.weight.rows(), out.cols() * (gated ? 2 : 1));
  SegmentStep* step = step_that_has(x);
  if (!step) return false;
  const int units = static_cast<int>(x.cols()) / kUnit;
  step->product = {.weight = weights_of(w),
                   .bias = floats_of(w.bias),
                   .gated = gated,
                   .act = act,
                   .features = static_cast<int>(out.cols()),
                   .units = units,
                   .item_units = item_units(units),
                   .f32 = out.dtype == DType::kF32,
                   .out = out.data,
                   .out_stride = out.row_stride};
  out_ = {out.data, segment_.steps - 1};
  out_cols_ = out.cols();
  return true;
}

bool FewRows::linear(const Tensor& out, const Tensor& x, const Linear& w) {
  return product(out, x, w, false, Act::kSilu);
}

bool FewRows::gated_linear(const Tensor& out, const Tensor& x, const Linear& w, Act act) {
  return product(out, x, w, true, act);
}

bool FewRows::add_norm(const Tensor& out, const Tensor& residual, const Tensor& delta,
                       const Norm& norm) {
  if (!takes_rows(out) || out.cols() > kMostNormCols || !on(residual, 16) ||
      reinterpret_cast<uintptr_t>(norm.weight.data) % 16 != 0 || segment_.steps == kSegmentSteps)
    return false;
  // Whatever is added must come from within: else all blocks would read the residual, and some
  // write it, with nothing in between.
  const bool behind = delta && !empty() && out_.is(delta) && out_cols_ == out.cols() &&
                      !segment_.step[out_.step].product.f32 &&
                      (norm_steps_ == 0 || residual_.data == residual.data);
  if (!behind && (delta || !empty())) return false;
  segment_.rows = static_cast<int>(out.rows());
  SegmentStep step = {.input = SegmentInput::kNorm,
                      .cols = static_cast<int>(out.cols()),
                      .shares = shares(out.cols() / 4),
                      .residual = residual.as<float>(),
                      .residual_stride = residual.row_stride,
                      .norm = norm.weight.as<float>(),
                      .eps = norm.eps,
                      .out = static_cast<__nv_bfloat16*>(out.data),
                      .out_stride = out.row_stride};
  if (behind) {
    step.wait = hand_over(out_.step);
    step.delta = static_cast<const __nv_bfloat16*>(copy_of(out_.step));
    step.residual_early = norm_steps_ == 0 || handed_over_since(last_norm_);
    if (norm_steps_ > 0) {
      step.residual = segment_.step[last_norm_].residual_out;
      step.residual_stride = step.cols;
    }
    step.residual_out = static_cast<float*>(take(int64_t{segment_.rows} * step.cols * 4));
    step.residual_out_stride = step.cols;
    residual_ = residual;
    last_norm_ = segment_.steps;
    ++norm_steps_;
  }
  x_ = {out.data, segment_.steps};
  out_ = {};
  add_step(step);
  return true;
}

bool FewRows::route(const Routing& routing, const Tensor& logits, const Tensor& bias,
                    const Router& router) {
  if (empty() || segment_.rows != 1 || !out_.is(logits) || out_cols_ != router.experts ||
      !segment_.step[out_.step].product.f32 || router.per_token() > kMostChosen ||
      router.total() > kMostExperts || router.top_k < 1 || router.top_k > router.experts ||
      segment_.routing.logits)
    return false;
  segment_.routing = {.wait = hand_over(out_.step),
                      .logits = static_cast<const float*>(copy_of(out_.step)),
                      .bias = floats_of(bias),
                      .experts = router.experts,
                      .top_k = router.top_k,
                      .always = router.always,
                      .renorm = router.renorm,
                      .expert = routing.expert.as<int32_t>(),
                      .order = routing.order.as<int32_t>(),
                      .start = routing.expert_start.as<int32_t>(),
                      .weight = routing.weight.as<float>()};
  routed_ = routing.expert.data;
  return true;
}

bool FewRows::takes_experts(const Tensor& out, const Tensor& x, const Routing& routing,
                            const Linear& gate_up, const Linear& down) const {
  const SegmentRouting& r = segment_.routing;
  const int64_t width = down.weight.dim[2], experts = r.experts + r.always;
  const int64_t most = std::max(r.always, r.top_k);
  const int64_t share = (x.cols() + blocks_ - 1) / blocks_;
  return routed_ && routed_ == routing.expert.data && x_.is(x) && takes_rows(x) &&
         segment_.step[x_.step].cols == x.cols() && out.dtype == DType::kBF16 &&
         width % kUnit == 0 && segment_.steps + kExpertSteps <= kSegmentSteps &&
         is_stack(gate_up.weight, experts, 2 * width, x.cols()) &&
         is_stack(down.weight, experts, x.cols(), width) && !gate_up.bias && !down.bias &&
         (x.cols() + most * width) * 2 <= kMostXBytes && share * (r.top_k + r.always) <= kMostSums;
}

// The experts that every token has come first: the others are being found out meanwhile.
bool FewRows::experts(const Tensor& out, const Tensor& x, const Routing& routing,
                      const Linear& gate_up, const Linear& down, Act act) {
  if (!takes_experts(out, x, routing, gate_up, down)) return false;
  const SegmentRouting& r = segment_.routing;
  const int hidden = static_cast<int>(x.cols()), width = static_cast<int>(down.weight.dim[2]);
  const auto up = [&](int slots, int first_slot) {
    SegmentStep& step = add_step({.product = {.weight = weights_of(gate_up),
                                              .expert_stride = 2 * int64_t{width} * hidden,
                                              .slots = slots,
                                              .first_slot = first_slot,
                                              .first_expert = r.experts,
                                              .routed = first_slot == 0,
                                              .flat = true,
                                              .gated = true,
                                              .act = act,
                                              .features = width,
                                              .units = hidden / kUnit,
                                              .item_units = item_units(hidden / kUnit)}});
    step.product.copy = take(int64_t{slots} * width * 2);
    return segment_.steps - 1;
  };
  const auto down_from = [&](int from) {
    const SegmentProduct p = segment_.step[from].product;
    add_step({.wait = hand_over(from),
              .input = SegmentInput::kRows,
              .cols = p.slots * width,
              .x = hidden,
              .rows = static_cast<const __nv_bfloat16*>(p.copy),
              .product = {.weight = weights_of(down),
                          .expert_stride = int64_t{hidden} * width,
                          .slots = p.slots,
                          .first_slot = p.first_slot,
                          .first_expert = p.first_expert,
                          .routed = p.routed,
                          .keep_sums = true,
                          .features = hidden,
                          .units = width / kUnit,
                          .item_units = item_units(width / kUnit),
                          .x = hidden,
                          .x_slot = width}});
  };
  const int always = r.always > 0 ? up(r.always, r.top_k) : -1;
  if (always >= 0) down_from(always);
  down_from(up(r.top_k, 0));
  last().combined = static_cast<__nv_bfloat16*>(out.data);
  last().combined_copy = static_cast<__nv_bfloat16*>(take(int64_t{hidden} * 2));
  out_ = {out.data, segment_.steps - 1};
  out_cols_ = hidden;
  return true;
}

void FewRows::soon(const Linear& w) {
  if (empty() || w.weight.dtype != DType::kBF16 || w.scheme != Scheme::kPlain ||
      w.weight.dim[2] > 1 || !w.weight.contiguous() || !on(w.weight, 16) ||
      w.weight.cols() % kUnit != 0)
    return;
  segment_.soon = weights_of(w);
  segment_.soon_shares = shares(w.weight.rows());
  segment_.soon_in = static_cast<int>(w.weight.cols());
}

// The last sum goes where the caller keeps it, once all blocks have read what was there.
void FewRows::settle_residual() {
  if (norm_steps_ == 0) return;
  SegmentStep& step = segment_.step[last_norm_];
  if (norm_steps_ > 1) {
    step.residual_out = residual_.as<float>();
    step.residual_out_stride = residual_.row_stride;
    return;
  }
  segment_.last_hand_over = hand_overs_++;
  segment_.residual_from = step.residual_out;
  segment_.residual_from_stride = step.residual_out_stride;
  segment_.residual_to = residual_.as<float>();
  segment_.residual_to_stride = residual_.row_stride;
  segment_.residual_shares = shares(step.cols / 4);
}

// Whole features do not share out evenly. The blocks that have one more in a product are those that
// follow the ones which had one more before. The sums that a block keeps are of the same features.
void FewRows::share_out() {
  int turn = 0, kept = -1;
  for (int i = 0; i < segment_.steps; ++i) {
    SegmentProduct& p = segment_.step[i].product;
    if (!p.weight) continue;
    p.turn = turn;
    if (p.keep_sums) p.turn = kept = kept < 0 ? turn : kept;
    p.shares = shares(p.flat ? int64_t{p.slots} * p.features : p.features);
    turn = (p.turn + blocks_ - p.shares.more) % blocks_;
  }
}

void FewRows::start(cudaStream_t stream) {
  if (empty()) return;
  settle_residual();
  share_out();
  segment_.soon_bytes = kSoonBytes;
  segment_.on_way_bytes = kOnWayBytes;
  segment_.counters = static_cast<unsigned*>(scratch_);
  segment_.ring_bytes = segment_ring_bytes(segment_.x_bytes);
  start_segment(segment_, blocks_, stream);
  segment_ = {};
  used_ = 0;
  hand_overs_ = norm_steps_ = 0;
  x_ = out_ = {};
  routed_ = nullptr;
}

}  // namespace skiff::cuda
