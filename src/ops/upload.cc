#include "ops/upload.h"

#include <utility>

#include "base/round_up.h"

namespace skiff {

Upload::Upload(Ops& ops, size_t bytes) : ops_(ops) {
  for (Buffer& buffer : host_) buffer = Buffer::pinned(bytes);
  if (ops.device() != Device{}) device_ = Buffer(ops.device(), bytes);
}

void Upload::begin() {
  SKIFF_CHECK(!std::exchange(open_, true), "the round before was never sent");
  round_ ^= 1;
  used_ = 0;
  ops_.wait(sent_[round_]);
}

Tensor Upload::take(DType dtype, std::initializer_list<int64_t> shape) {
  const Tensor out = host_[round_].view(dtype, shape, used_);
  used_ += round_up(static_cast<size_t>(out.elements()) * bytes(dtype), kTensorAlign);
  return out;
}

Tensor Upload::there(Tensor taken) const {
  if (device_.size() == 0) return taken;
  const auto* at = static_cast<const std::byte*>(taken.data);
  taken.data = device_.data() + (at - host_[round_].data());
  taken.device = ops_.device();
  return taken;
}

void Upload::send() {
  const Arrival all = arrival();
  if (all.to) ops_.copy(all.to, all.from);
  done_with(ops_.mark());
}

Arrival Upload::arrival() const {
  if (device_.size() == 0 || used_ == 0) return {};
  const auto words = static_cast<int64_t>(used_ / sizeof(int32_t));
  return {.to = device_.view(DType::kI32, {1, words}),
          .from = host_[round_].view(DType::kI32, {1, words})};
}

void Upload::done_with(uint64_t mark) {
  sent_[round_] = mark;
  open_ = false;
}

}  // namespace skiff
