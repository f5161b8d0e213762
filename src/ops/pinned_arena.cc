#include "ops/pinned_arena.h"

#include <algorithm>

namespace skiff {
namespace {

constexpr size_t kPiece = size_t{1} << 20;

size_t round_up(size_t n) { return (n + kTensorAlign - 1) / kTensorAlign * kTensorAlign; }

}  // namespace

Tensor PinnedArena::take(DType dtype, std::initializer_list<int64_t> shape) {
  const Tensor form = host_tensor(nullptr, dtype, shape);
  const size_t need = round_up(static_cast<size_t>(form.elements()) * bytes(dtype));
  while (piece_ < pieces_.size() && used_ + need > pieces_[piece_].size()) {
    ++piece_;
    used_ = 0;
  }
  if (piece_ == pieces_.size()) pieces_.push_back(Buffer::pinned(std::max(need, kPiece)));
  const Tensor out = pieces_[piece_].view(dtype, shape, used_);
  used_ += need;
  return out;
}

void PinnedArena::reset() { piece_ = used_ = 0; }

}  // namespace skiff
