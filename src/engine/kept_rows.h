// engine/kept_rows.h -- hidden rows of a served model that a module lags behind.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ops/ops.h"
#include "ops/pinned_arena.h"

namespace skiff::engine {

// Rows are appended in one half of a buffer; when it is full, those that are still needed move to
// the other. Each append is one kernel, whatever the number of sequences. Owned and driven by the
// thread that drives `ops`.
class KeptRows {
 public:
  // Makes room for `capacity` needed rows [hidden] of `act`; none: nothing is ever kept.
  KeptRows(DType act, int64_t hidden, int32_t capacity, Ops& ops);
  // Returns the bytes of that room.
  static size_t memory_bytes(DType act, int64_t hidden, int32_t capacity);

  // [all rows, hidden]; a needed row is found by the number that append() or a move gave it.
  Tensor rows() const;
  // Copies the rows `from` of `hidden` behind the needed ones, and returns the number of the first.
  // `needed` are the numbers of all rows that are still needed; they change where rows move.
  // Waits until the copy of the call before the last one has ended.
  int32_t append(const std::vector<int32_t>& from, Tensor hidden,
                 std::span<std::vector<int32_t>* const> needed);

 private:
  int32_t room_for(int32_t count, std::span<std::vector<int32_t>* const> needed);
  Tensor take_list(const std::vector<int32_t>& rows);

  const DType act_;
  const int64_t hidden_;
  const int32_t half_;  // rows of a half
  Ops& ops_;
  Buffer memory_;
  int32_t begin_ = 0, end_ = 0;  // the rows in use lie between
  // The numbers of rows that a call copies, in page-locked memory, and the mark behind the copy.
  struct List {
    PinnedArena memory;
    std::optional<uint64_t> copied;
  };
  std::array<List, 2> lists_;
  size_t calls_ = 0;
};

}  // namespace skiff::engine
