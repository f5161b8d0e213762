#include "ops/cuda/one_row/one_row.h"

#include <algorithm>

#include "ops/cuda/align.h"
#include "ops/cuda/check.h"
#include "ops/cuda/linear/shape.h"

namespace skiff::cuda {
namespace {

constexpr size_t kCounterBytes = kSegmentHandOvers * kCounterStride * sizeof(unsigned);
constexpr int kMaxXBytes = 120 << 10;  // leaves about half of shared memory to the ring
// Per block: bytes in flight, and bytes that are prefetched for the next segment.
constexpr int kOnWayBytes = 96 << 10, kSoonBytes = 128 << 10;

int item_units(int units) {
  if (units <= kMaxUnits) return units;
  const int items = (units + 7) / 8;
  return (units + items - 1) / items;
}

// Returns whether a segment can read the weights: one plain bf16 matrix, aligned to 16 bytes.
bool takes_weights(const Linear& w) {
  return w.experts == 0 && is_plain(w, DType::kBF16) && is_aligned(w.weight);
}

const __nv_bfloat16* weights_of(const Linear& w) {
  return static_cast<const __nv_bfloat16*>(w.weight.data);
}
const float* floats_of(const Tensor& t) { return t ? t.as<float>() : nullptr; }

}  // namespace

OneRow::OneRow(void* scratch, bool gathers) : scratch_(scratch) {
  if (!gathers) return;
  blocks_ = attribute(cudaDevAttrMultiProcessorCount);
  allow_segments();
  check(cudaMemset(scratch_, 0, kCounterBytes), "clearing the counters of hand-overs");
  // Kernels run in streams that do not wait for the one in which memory is cleared (stream.cu).
  check(cudaStreamSynchronize(nullptr), "clearing the counters of hand-overs");
}

bool OneRow::takes_row(const Tensor& x) const {
  return blocks_ > 0 && x.dtype == DType::kBF16 && x.rows() == 1 && x.cols() % kUnit == 0 &&
         is_aligned(x) && x.cols() * 2 <= kMaxXBytes;
}

SegmentShares OneRow::shares(int64_t things) const {
  return {static_cast<int>(things / blocks_), static_cast<int>(things % blocks_)};
}

SegmentStep& OneRow::add_step(const SegmentStep& step) {
  SKIFF_CHECK(segment_.steps < kSegmentSteps);
  segment_.step[segment_.steps++] = step;
  segment_.x_bytes = std::max(segment_.x_bytes, 2 * step.cols);
  return last();
}

// Is there a grid-wide barrier between `step` and the step that is added next?
bool OneRow::handed_over_since(int step) const {
  for (int i = step + 1; i < segment_.steps; ++i) {
    for (int from = step; from < i; ++from) {
      if (segment_.step[i].wait >= 0 && segment_.step[from].arrive == segment_.step[i].wait)
        return true;
    }
  }
  return false;
}

void* OneRow::take(int64_t bytes) {
  void* at = static_cast<std::byte*>(scratch_) + kCounterBytes + used_;
  used_ += static_cast<size_t>((bytes + 255) / 256 * 256);
  SKIFF_CHECK(kCounterBytes + used_ <= kScratchBytes, "{} bytes of scratch", used_);
  return at;
}

int OneRow::hand_over(int step) {
  int& arrive = segment_.step[step].arrive;
  if (arrive < 0) arrive = hand_overs_++;
  return arrive;
}

void* OneRow::copy_of(int step) {
  SegmentProduct& p = segment_.step[step].product;
  if (!p.copy) p.copy = take(int64_t{p.features} * (p.f32 ? 4 : 2));
  return p.copy;
}

// A step that has x as its input and no GEMV yet; null where x is no output of this segment.
SegmentStep* OneRow::step_that_has(const Tensor& x) {
  if (segment_.steps == kSegmentSteps) return nullptr;
  const int cols = static_cast<int>(x.cols());
  if (empty()) {
    return &add_step({.input = SegmentInput::kRow,
                      .cols = cols,
                      .row = static_cast<const __nv_bfloat16*>(x.data)});
  }
  if (x_.is(x) && segment_.step[x_.step].cols == cols) {
    if (x_.step + 1 == segment_.steps && !last().product.weight) return &last();
    return &add_step({});
  }
  if (!out_.is(x) || out_cols_ != cols || segment_.step[out_.step].product.f32) return nullptr;
  x_ = {};
  return &add_step({.wait = hand_over(out_.step),
                    .input = SegmentInput::kRow,
                    .cols = cols,
                    .row = static_cast<const __nv_bfloat16*>(copy_of(out_.step))});
}

bool OneRow::product(const Tensor& out, const Tensor& x, const Linear& w, bool gated, Act act) {
  if (!takes_row(x) || !takes_weights(w) || (out.dtype != DType::kBF16 && out.dtype != DType::kF32))
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
                   .out = out.data};
  out_ = {out.data, segment_.steps - 1};
  out_cols_ = out.cols();
  return true;
}

bool OneRow::linear(const Tensor& out, const Tensor& x, const Linear& w) {
  return product(out, x, w, false, Act::kSilu);
}

bool OneRow::gated_linear(const Tensor& out, const Tensor& x, const Linear& w, Act act) {
  return product(out, x, w, true, act);
}

bool OneRow::add_norm(const Tensor& out, const Tensor& residual, const Tensor& delta,
                      const Norm& norm) {
  if (!takes_row(out) || out.cols() > kMaxNormCols || !is_aligned(residual) ||
      !is_aligned(norm.weight.data) || segment_.steps == kSegmentSteps)
    return false;
  // delta must come from this segment; otherwise blocks would read and write the residual without
  // a barrier in between.
  const bool behind = delta && !empty() && out_.is(delta) && out_cols_ == out.cols() &&
                      !segment_.step[out_.step].product.f32 &&
                      (norm_steps_ == 0 || residual_.data == residual.data);
  if (!behind && (delta || !empty())) return false;
  SegmentStep step = {.input = SegmentInput::kNorm,
                      .cols = static_cast<int>(out.cols()),
                      .shares = shares(out.cols() / 4),
                      .residual = residual.as<float>(),
                      .norm = norm.weight.as<float>(),
                      .eps = norm.eps,
                      .out = static_cast<__nv_bfloat16*>(out.data)};
  if (behind) {
    step.wait = hand_over(out_.step);
    step.delta = static_cast<const __nv_bfloat16*>(copy_of(out_.step));
    step.residual_early = norm_steps_ == 0 || handed_over_since(last_norm_);
    if (norm_steps_ > 0) step.residual = segment_.step[last_norm_].residual_out;
    step.residual_out = static_cast<float*>(take(int64_t{step.cols} * 4));
    residual_ = residual;
    last_norm_ = segment_.steps;
    ++norm_steps_;
  }
  x_ = {out.data, segment_.steps};
  out_ = {};
  add_step(step);
  return true;
}

void OneRow::soon(const Linear& w) {
  if (empty() || !takes_weights(w) || w.weight.cols() % kUnit != 0) return;
  segment_.soon = weights_of(w);
  segment_.soon_shares = shares(w.weight.rows());
  segment_.soon_in = static_cast<int>(w.weight.cols());
}

// Writes the last residual sum to the caller's tensor, once all blocks have read the old one.
void OneRow::settle_residual() {
  if (norm_steps_ == 0) return;
  SegmentStep& step = segment_.step[last_norm_];
  if (norm_steps_ > 1) {
    step.residual_out = residual_.as<float>();
    return;
  }
  segment_.last_hand_over = hand_overs_++;
  segment_.residual_from = step.residual_out;
  segment_.residual_to = residual_.as<float>();
  segment_.residual_shares = shares(step.cols / 4);
}

// Rotates which blocks get the remainder of each product, so that it is spread evenly.
void OneRow::share_out() {
  int turn = 0;
  for (int i = 0; i < segment_.steps; ++i) {
    SegmentProduct& p = segment_.step[i].product;
    if (!p.weight) continue;
    p.turn = turn;
    p.shares = shares(p.features);
    turn = (p.turn + blocks_ - p.shares.more) % blocks_;
  }
}

void OneRow::start(cudaStream_t stream) {
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
}

}  // namespace skiff::cuda
