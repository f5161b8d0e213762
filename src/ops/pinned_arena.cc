#include "ops/pinned_arena.h"

#include <algorithm>

#include "base/round_up.h"

namespace skiff {
namespace {

constexpr size_t kPiece = size_t{1} << 20;
constexpr int kRounds = 64;

}  // namespace

Tensor PinnedArena::take(DType dtype, std::initializer_list<int64_t> shape) {
  const Tensor form = host_tensor(nullptr, dtype, shape);
  const size_t need = round_up(static_cast<size_t>(form.elements()) * bytes(dtype), kTensorAlign);
  while (piece_ < pieces_.size() && used_ + need > pieces_[piece_].size()) {
    ++piece_;
    used_ = 0;
  }
  if (piece_ == pieces_.size()) pieces_.push_back(Buffer::pinned(std::max(need, kPiece)));
  const Tensor out = pieces_[piece_].view(dtype, shape, used_);
  used_ += need;
  return out;
}

void PinnedArena::reset() {
  reached_ = std::max(reached_, piece_ + (used_ > 0));
  if (++rounds_ >= kRounds) {
    if (reached_ < pieces_.size())
      pieces_.erase(pieces_.begin() + static_cast<std::ptrdiff_t>(reached_), pieces_.end());
    rounds_ = 0;
    reached_ = 0;
  }
  piece_ = used_ = 0;
}

size_t PinnedArena::held() const {
  size_t sum = 0;
  for (const Buffer& piece : pieces_) sum += piece.size();
  return sum;
}

}  // namespace skiff
