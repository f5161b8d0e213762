// This file implements groups of threads of one process. Each rank shows the others its tensor and
// reads theirs, so nothing is copied that is not summed or gathered.
#include <algorithm>
#include <utility>

#include "comm/call.h"
#include "comm/communicator.h"
#include "comm/meeting.h"
#include "comm/sums.h"

namespace skiff::comm {
namespace {

// What a rank shows to the others.
struct Shown {
  Call call;
  Tensor tensor;
  int64_t number = 0;
};

struct Group {
  explicit Group(int size) : meeting(size), shown(static_cast<size_t>(size)) {}
  Meeting meeting;
  std::vector<Shown> shown;  // by rank; an entry is written by its rank before a meeting
};

class Threads final : public Communicator {
 public:
  Threads(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->shown.size()); }

  // The sums wait in memory of this rank until nobody reads its tensor any more.
  void all_reduce(Tensor x, Ops& ops) override {
    meet(Collective::kReduce, on_host(x, ops));
    const int64_t cols = x.cols();
    sums_.resize(static_cast<size_t>(x.elements()));
    for_each_sum(x, [&](int64_t r, const std::vector<float>& sum) {
      std::ranges::copy(sum, sums_.begin() + r * cols);
    });
    group_->meeting.arrive();
    ops.copy(x, host_tensor(sums_.data(), DType::kF32, {x.rows(), cols}));
  }

  void reduce_add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm,
                       Ops& ops) override {
    meet(Collective::kReduceAddNorm, on_host(delta, ops));
    for_each_sum(delta, [&](int64_t r, const std::vector<float>& sum) {
      float* to = residual.row<float>(r);
      for (size_t i = 0; i < sum.size(); ++i) to[i] += sum[i];
    });
    group_->meeting.arrive();
    ops.add_norm(out, residual, {}, norm);
  }

  void all_gather(Tensor out, Tensor x, Ops& ops) override {
    meet(Collective::kGather, on_host(x, ops));
    SKIFF_CHECK_EQ(out.cols(), x.cols() * size());
    for (int from = 0; from < size(); ++from) {
      const Tensor to = out.col_range(from * x.cols(), x.cols());
      const Tensor& theirs = group_->shown[static_cast<size_t>(from)].tensor;
      if (to.data != theirs.data) ops.copy(to, theirs);
    }
    group_->meeting.arrive();
  }

  int64_t least(int64_t mine) override {
    meet(Collective::kLeast, {}, mine);
    int64_t least = mine;
    for (const Shown& shown : group_->shown) least = std::min(least, shown.number);
    group_->meeting.arrive();
    return least;
  }

  void abort(const std::string& why) override { group_->meeting.end(why); }

 private:
  static Tensor on_host(Tensor x, Ops& ops) {
    SKIFF_CHECK(ops.device() == Device{}, "threads of {} are no group yet", ops.name());
    return x;
  }

  // Shows the others what this rank has, and returns when all have done so. Ranks that are at
  // different places would add up unlike things, so they end the group instead.
  void meet(Collective kind, Tensor tensor, int64_t number = 0) {
    std::vector<Shown>& shown = group_->shown;
    shown[static_cast<size_t>(rank_)] = {call_of(kind, tensor), tensor, number};
    group_->meeting.arrive();
    for (int other = 1; other < size(); ++other) {
      const Call& call = shown[static_cast<size_t>(other)].call;
      if (call == shown[0].call) continue;
      const std::string why = describe_apart(shown[0].call, call, other);
      abort(why);
      throw GroupEnded(why);
    }
  }

  template <class Use>
  void for_each_sum(Tensor like, Use use) {
    row_.resize(static_cast<size_t>(like.cols()));
    tensors_.clear();
    for (const Shown& shown : group_->shown) tensors_.push_back(shown.tensor);
    for (int64_t r = 0; r < like.rows(); ++r) {
      sum_row(tensors_, r, row_);
      use(r, row_);
    }
  }

  const std::shared_ptr<Group> group_;
  const int rank_;
  // Memory that is kept from call to call.
  std::vector<float> row_, sums_;
  std::vector<Tensor> tensors_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_threads(int size) {
  SKIFF_CHECK(size >= 1, "a group of {}", size);
  const auto group = std::make_shared<Group>(size);
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
