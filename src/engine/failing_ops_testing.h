// engine/failing_ops_testing.h -- for tests: an Ops that fails in the middle of a step.
#pragma once
#include <stdexcept>

#include "ops/reference/reference_ops.h"

namespace skiff::engine {

// An Ops whose add_norm() throws "no room" when it is called for the `norms`-th time; 0: never.
class FailingOps final : public reference::ReferenceOps {
 public:
  explicit FailingOps(int norms) : norms_(norms) {}
  void add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm) override {
    if (--norms_ == 0) throw std::runtime_error("no room");
    ReferenceOps::add_norm(out, residual, delta, norm);
  }

 private:
  int norms_;
};

}  // namespace skiff::engine
