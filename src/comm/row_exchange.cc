#include "comm/row_exchange.h"

#include <utility>

#include "comm/sums.h"
#include "comm/thread_group.h"

namespace skiff::comm {
namespace {

class SoloExchange final : public RowExchange {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Tensor dispatch(Tensor x, Arena&, Ops&) override { return x; }
  Tensor combine(Tensor parts, int64_t /*rows*/, Arena&, Ops&) override { return parts; }
};

class ThreadExchange final : public RowExchange {
 public:
  ThreadExchange(std::shared_ptr<ThreadGroup> group, int rank)
      : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  Tensor dispatch(Tensor x, Arena& arena, Ops& ops) override {
    Call call = call_of(Collective::kDispatch, on_host(x, ops));
    call.rows = 0;  // the one thing in which ranks differ
    const Shown all = group_->meet(rank_, {.call = call, .tensor = x});
    const Tensor out = arena.take(x.dtype, {rows_before(all, size()), x.cols()});
    for (int from = 0; from < size(); ++from) {
      const Tensor& theirs = all[static_cast<size_t>(from)].tensor;
      ops.copy(out.row_range(rows_before(all, from), theirs.rows()), theirs);
    }
    group_->part();
    return out;
  }

  Tensor combine(Tensor parts, int64_t rows, Arena& arena, Ops& ops) override {
    const Call call = call_of(Collective::kCombine, on_host(parts, ops));
    const Shown all = group_->meet(rank_, {.call = call, .tensor = parts, .number = rows});
    tensors_.clear();
    int64_t first = 0, sum = 0;
    for (int from = 0; from < size(); ++from) {
      const ThreadGroup::Shown& theirs = all[static_cast<size_t>(from)];
      tensors_.push_back(theirs.tensor);
      if (from < rank_) first += theirs.number;
      sum += theirs.number;
    }
    SKIFF_CHECK_EQ(sum, parts.rows());
    const Tensor out = arena.take(parts.dtype, {rows, parts.cols()});
    row_.resize(static_cast<size_t>(parts.cols()));
    sum_rows(tensors_, first, out, row_);
    group_->part();
    return out;
  }

  int64_t least(int64_t mine) override { return group_->least(rank_, mine); }
  void abort(const std::string& why) override { group_->end(why); }

 private:
  using Shown = std::span<const ThreadGroup::Shown>;

  static int64_t rows_before(Shown all, int rank) {
    int64_t sum = 0;
    for (const ThreadGroup::Shown& shown : all.first(static_cast<size_t>(rank)))
      sum += shown.tensor.rows();
    return sum;
  }

  const std::shared_ptr<ThreadGroup> group_;
  const int rank_;
  // Memory that is kept from call to call.
  std::vector<float> row_;
  std::vector<Tensor> tensors_;
};

}  // namespace

std::unique_ptr<RowExchange> make_solo_exchange() { return std::make_unique<SoloExchange>(); }

std::vector<std::unique_ptr<RowExchange>> make_thread_exchanges(int size) {
  SKIFF_CHECK(size >= 1, "a group of {}", size);
  const auto group = std::make_shared<ThreadGroup>(size);
  std::vector<std::unique_ptr<RowExchange>> ranks;
  ranks.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(std::make_unique<ThreadExchange>(group, rank));
  return ranks;
}

size_t exchange_bytes(int size, int64_t rows, int64_t cols, DType dtype) {
  if (size == 1) return 0;
  return Arena::size_of(dtype, size * rows * cols) + Arena::size_of(dtype, rows * cols);
}

}  // namespace skiff::comm
