// This file implements communicators of threads of one process.
#include <algorithm>
#include <utility>

#include "comm/communicator.h"
#include "comm/sums.h"
#include "comm/thread_group.h"

namespace skiff::comm {
namespace {

class Threads final : public Communicator {
 public:
  Threads(std::shared_ptr<ThreadGroup> group, int rank) : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  // The sums wait in memory of this rank until nobody reads its tensor any more.
  void all_reduce(Tensor x, Ops& ops) override {
    const Shown all = meet(Collective::kReduce, on_host(x, ops));
    const int64_t cols = x.cols();
    sums_.resize(static_cast<size_t>(x.elements()));
    for_each_sum(all, x, [&](int64_t r, const std::vector<float>& sum) {
      std::ranges::copy(sum, sums_.begin() + r * cols);
    });
    group_->part();
    ops.copy(x, host_tensor(sums_.data(), DType::kF32, {x.rows(), cols}));
  }

  void reduce_add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm,
                       ResidualUse /*use*/, Ops& ops) override {
    const Shown all = meet(Collective::kReduceAddNorm, on_host(delta, ops));
    for_each_sum(all, delta, [&](int64_t r, const std::vector<float>& sum) {
      float* to = residual.row<float>(r);
      for (size_t i = 0; i < sum.size(); ++i) to[i] += sum[i];
    });
    group_->part();
    ops.add_norm(out, residual, {}, norm);
  }

  void all_gather(Tensor out, Tensor x, Ops& ops) override {
    const Shown all = meet(Collective::kGather, on_host(x, ops));
    SKIFF_CHECK_EQ(out.cols(), x.cols() * size());
    for (int from = 0; from < size(); ++from) {
      const Tensor to = out.col_range(from * x.cols(), x.cols());
      const Tensor& theirs = all[static_cast<size_t>(from)].tensor;
      if (to.data != theirs.data) ops.copy(to, theirs);
    }
    group_->part();
  }

  int64_t least(int64_t mine) override { return group_->least(rank_, mine); }
  void abort(const std::string& why) override { group_->end(why); }

 private:
  using Shown = std::span<const ThreadGroup::Shown>;

  Shown meet(Collective kind, Tensor tensor) {
    return group_->meet(rank_, {.call = call_of(kind, tensor), .tensor = tensor});
  }

  template <class Use>
  void for_each_sum(Shown all, Tensor like, Use use) {
    row_.resize(static_cast<size_t>(like.cols()));
    tensors_.clear();
    for (const ThreadGroup::Shown& shown : all) tensors_.push_back(shown.tensor);
    for (int64_t r = 0; r < like.rows(); ++r) {
      sum_row(tensors_, r, row_);
      use(r, row_);
    }
  }

  const std::shared_ptr<ThreadGroup> group_;
  const int rank_;
  // Memory that is kept from call to call.
  std::vector<float> row_, sums_;
  std::vector<Tensor> tensors_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_threads(int size) {
  SKIFF_CHECK(size >= 1, "a group of {}", size);
  const auto group = std::make_shared<ThreadGroup>(size);
  std::vector<std::unique_ptr<Communicator>> ranks;
  ranks.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) ranks.push_back(std::make_unique<Threads>(group, rank));
  return ranks;
}

std::vector<Mesh> make_thread_meshes(int size) {
  std::vector<Mesh> meshes;
  if (size == 1) {
    meshes.push_back(make_solo_mesh());
    return meshes;
  }
  for (auto& rank : make_threads(size)) meshes.push_back({.tp = std::move(rank)});
  return meshes;
}

}  // namespace skiff::comm
