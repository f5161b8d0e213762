// ops/cuda/moe/deferred.h -- the end of a mixture of experts, and the sort of a routing's copies,
// which wait for the operations behind them, because one kernel may do all of them.
//
// With a few rows a kernel hands over for as long as it computes. What sums up a token's experts,
// adds a shared expert and norms the result is one kernel here instead of three; and copies are
// sorted by the kernel that gathers them.
#pragma once
#include <optional>

#include "ops/cuda/moe/combination.h"

namespace skiff::cuda {

// Operations are offered in order. start() starts what has joined and was not started; it must be
// called before anything else goes to the stream, so that nothing writes to the tensors of a
// Combination before it has been computed.
class Deferred {
 public:
  void combine(const Combination& c);
  // These return whether the operation has joined: Ops::add, and Ops::add_norm, which starts all.
  // An offer that is not taken changes nothing.
  bool add(const Tensor& out, const Tensor& x);
  bool add_norm(const Tensor& out, const Tensor& residual, const Tensor& delta, const Norm& norm,
                cudaStream_t stream);
  void start(cudaStream_t stream);

  // sort_copies().
  void sort(const Routing& routing);
  // Returns whether the routing waits to be sorted, which is now up to the caller.
  bool leaves_unsorted(const Routing& routing);

 private:
  std::optional<Combination> combination_;
  std::optional<Routing> unsorted_;
};

}  // namespace skiff::cuda
