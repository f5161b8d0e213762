// ops/cuda/backend_dense.cc -- CudaOps: rows, norms, GEMMs, gates and experts.
#include "ops/cuda/backend.h"

#include <utility>

#include "ops/cuda/moe/experts.h"
#include "ops/cuda/moe/route.h"
#include "ops/cuda/quant/direct_args.h"
#include "ops/cuda/quant/round_ahead.h"
#include "ops/cuda/rows/rows.h"
#include "ops/layer_arena.h"

namespace skiff::cuda {
namespace {

int64_t bias_rows(const Tensor& out) {
  return std::max<int64_t>(1, static_cast<int64_t>(kBiasScratch / sizeof(float)) / out.cols());
}

}  // namespace

void CudaOps::embed(Tensor out, Tensor table, Tensor ids) { gather_rows(out, table, ids); }

void CudaOps::gather_rows(Tensor out, Tensor x, Tensor rows) {
  SKIFF_CHECK_EQ(out.rows(), rows.rows());
  copy_rows(out, x, rows, stream());
  done();
}

void CudaOps::add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm) {
  if (deferred_.add_norm(out, residual, delta, norm, stream_.get())) return done();
  if (gathered([&] { return one_row_.add_norm(out, residual, delta, norm); })) return;
  if (rounds_ahead(out) && rounds_norm(out, residual, delta, norm)) {
    const cudaStream_t on = stream();
    ahead_ = {out, add_norm_rounding(out, residual, delta, norm, products_.inputs(), on)};
  } else {
    cuda::add_norm(out, residual, delta, norm, stream());
  }
  done();
}

// Returns whether rows of `out` had better be rounded where they are made: a product of few rows
// rounds them itself.
bool CudaOps::rounds_ahead(const Tensor& out) const {
  return has_channels_ && out.rows() > kMostDirectRows && rounds_rows(out) &&
         rounded_rows_bytes(out.rows(), out.cols()) <= products_.inputs().bytes;
}

std::optional<RoundedRows> CudaOps::ahead_of(const Tensor& x) const {
  const auto is_it = [&](const Tensor& known) {
    return known.data == x.data && known.dtype == x.dtype && known.rows() == x.rows() &&
           known.cols() == x.cols() && known.row_stride == x.row_stride;
  };
  return ahead_ && is_it(ahead_->x) ? std::optional(ahead_->rounded) : std::nullopt;
}

// Returns whether a product between begin_aside() and end_aside() goes to the other lane, where
// this one has no operation left to start that it may wait for. Otherwise the lanes are one: what
// the other lane has made may be an operand.
bool CudaOps::goes_aside(const Tensor& x, const Linear& w, bool gated) {
  if (!aside_) return false;
  const bool goes = !options_.synchronous && !rehearsing_ &&
                    products_.streams_quantized(x, w, gated) && side_.takes(x, w, gated);
  if (!goes) join();
  if (goes && !side_.is_open()) stream();
  return goes;
}

void CudaOps::linear(Tensor out, Tensor x, const Linear& w) {
  if (goes_aside(x, w, false)) return side_.product(out, x, w);
  if (gathered([&] { return one_row_.linear(out, x, w); })) return;
  const int64_t most = w.bias ? bias_rows(out) : out.rows();
  for (int64_t r = 0; r < out.rows(); r += most) {
    const int64_t n = std::min(most, out.rows() - r);
    const Tensor part = out.row_range(r, n), rows = x.row_range(r, n);
    if (rehearsing_) {
      products_.tune(part, rows, w, stream());
    } else {
      product(part, rows, w);
    }
  }
  done();
}

void CudaOps::product(Tensor out, Tensor x, const Linear& w) {
  const bool beside = last_product_.allows({x}, {out});
  const std::optional<RoundedRows> rounded = ahead_of(x);
  products_.product(out, x, w, stream(), beside, rounded);
  if (products_.triggers_late(x, w)) last_product_.remember(out, x);
}

void CudaOps::gated_act(Tensor out, Tensor gate_up, Act act) {
  if (rounds_ahead(out) && rounds_gated(out, gate_up)) {
    const cudaStream_t on = stream();
    ahead_ = {out, gated_act_rounding(out, gate_up, act, products_.inputs(), on)};
  } else {
    cuda::gated_act(out, gate_up, act, stream());
  }
  done();
}

void CudaOps::gated_linear(Tensor out, Tensor x, const Linear& w, Act act, Arena& arena) {
  if (goes_aside(x, w, true)) return side_.gated_product(out, x, w, act);
  if (gathered([&] { return one_row_.gated_linear(out, x, w, act); })) return;
  const std::optional<Ahead> ahead = ahead_;
  const std::optional<RoundedRows> rounded = ahead_of(x);
  if (products_.gated_product(out, x, w, act, stream(), rounded)) {
    if (products_.triggers_late(x, w)) last_product_.remember(out, x);
    return done();
  }
  ahead_ = ahead;  // nothing was started
  // The gate reads what the product writes, in this lane: so the product is computed here, too.
  const bool aside = std::exchange(aside_, false);
  const size_t mark = arena.mark();
  const Tensor gate_up = arena.take(out.dtype, {x.rows(), 2 * out.cols()});
  linear(gate_up, x, w);
  gated_act(out, gate_up, act);
  arena.rewind(mark);
  aside_ = aside;
}

Routing CudaOps::route(Tensor logits, Tensor bias, const Router& router, Arena& arena) {
  const Routing r = take_routing(arena, logits.rows(), router);
  const bool beside = last_product_.allows({logits}, {r.expert, r.weight, r.order, r.expert_start});
  cuda::choose(r, logits, bias, router, routed_, stream(), beside);
  if (logits.rows() != 1) deferred_.sort(r);
  done();
  return r;
}

void CudaOps::experts(Tensor out, Tensor x, const Routing& routing, const Linear& gate_up,
                      const Linear& down, Act act, Arena& arena) {
  const bool sorted = x.rows() == 0 || !deferred_.leaves_unsorted(routing);
  const Combination last = cuda::experts(out, x, routing, {gate_up, down, act},
                                         products_.streamed(), arena, stream(), sorted);
  deferred_.combine(last);
  done();
}

void CudaOps::add(Tensor out, Tensor x) {
  if (deferred_.add(out, x)) return done();
  cuda::add(out, x, stream());
  done();
}

void CudaOps::relu(Tensor x) {
  cuda::relu(x, stream());
  done();
}

}  // namespace skiff::cuda
