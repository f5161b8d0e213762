#include "ops/cuda/moe/deferred.h"

#include "ops/cuda/beside.h"
#include "ops/cuda/moe/route.h"

namespace skiff::cuda {
namespace {

bool is_same(const Tensor& a, const Tensor& b) {
  return a.data == b.data && a.dtype == b.dtype && a.rows() == b.rows() && a.cols() == b.cols() &&
         a.row_stride == b.row_stride;
}

}  // namespace

void Deferred::combine(const Combination& c) {
  SKIFF_CHECK(!combination_, "a combination before the last one was started");
  if (c.out) combination_ = c;
}

bool Deferred::add(const Tensor& out, const Tensor& x) {
  if (!combination_ || combination_->more || !is_same(out, combination_->out) ||
      x.dtype != out.dtype || x.rows() != out.rows() || x.cols() != out.cols() || overlap(x, out))
    return false;
  combination_->more = x;
  return true;
}

bool Deferred::add_norm(const Tensor& out, const Tensor& residual, const Tensor& delta,
                        const Norm& norm, cudaStream_t stream) {
  if (!combination_ || !is_same(delta, combination_->out) ||
      !norms_with(*combination_, out, residual, norm))
    return false;
  combine_norm(*combination_, out, residual, norm, stream);
  combination_.reset();
  return true;
}

void Deferred::sort(const Routing& routing) {
  SKIFF_CHECK(!unsorted_, "a routing before the last one was sorted");
  unsorted_ = routing;
}

bool Deferred::leaves_unsorted(const Routing& routing) {
  if (!unsorted_ || !is_same(unsorted_->expert, routing.expert)) return false;
  unsorted_.reset();
  return true;
}

void Deferred::start(cudaStream_t stream) {
  if (unsorted_) sort_copies(*unsorted_, stream);
  unsorted_.reset();
  if (combination_) cuda::combine(*combination_, stream);
  combination_.reset();
}

}  // namespace skiff::cuda
