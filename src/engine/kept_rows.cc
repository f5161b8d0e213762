#include "engine/kept_rows.h"

#include <algorithm>
#include <utility>

namespace skiff::engine {
namespace {

// The rows of a half: the capacity and a quarter more, so that several steps pass before rows move.
int32_t half_of(int32_t capacity) { return capacity * 5 / 4; }

}  // namespace

size_t KeptRows::memory_bytes(DType act, int64_t hidden, int32_t capacity) {
  return byte_size(act, 2 * int64_t{half_of(capacity)} * hidden);
}

KeptRows::KeptRows(DType act, int64_t hidden, int32_t capacity, Ops& ops)
    : act_(act),
      hidden_(hidden),
      half_(half_of(capacity)),
      ops_(ops),
      memory_(ops.device(), memory_bytes(act, hidden, capacity)) {}

Tensor KeptRows::rows() const {
  return half_ == 0 ? Tensor{} : memory_.view(act_, {2 * int64_t{half_}, hidden_});
}

int32_t KeptRows::append(const std::vector<int32_t>& from, Tensor hidden,
                         std::span<std::vector<int32_t>* const> needed) {
  List& list = lists_[++calls_ % lists_.size()];
  if (list.copied) ops_.wait(*list.copied);
  list.memory.reset();
  const auto count = static_cast<int32_t>(from.size());
  const int32_t first = room_for(count, needed);
  ops_.gather_rows(rows().row_range(first, count), hidden, take_list(from));
  list.copied = ops_.mark();
  return first;
}

// Returns the first of `count` free rows behind the needed ones.
int32_t KeptRows::room_for(int32_t count, std::span<std::vector<int32_t>* const> needed) {
  if (end_ + count > begin_ + half_) {
    begin_ = begin_ == 0 ? half_ : 0;
    end_ = begin_;
    std::vector<int32_t> live;
    for (std::vector<int32_t>* numbers : needed)
      for (int32_t& row : *numbers) live.push_back(std::exchange(row, end_++));
    if (!live.empty())
      ops_.gather_rows(rows().row_range(begin_, std::ssize(live)), rows(), take_list(live));
  }
  SKIFF_CHECK(end_ + count <= begin_ + half_, "{} rows to keep", count);
  return std::exchange(end_, end_ + count);
}

Tensor KeptRows::take_list(const std::vector<int32_t>& rows) {
  const Tensor list = lists_[calls_ % lists_.size()].memory.take(DType::kI32, {std::ssize(rows)});
  std::ranges::copy(rows, list.as<int32_t>());
  return list;
}

}  // namespace skiff::engine
