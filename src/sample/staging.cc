#include "sample/staging.h"

namespace skiff::sample {

void Staging::begin() {
  turn_ = (turn_ + 1) % turns_.size();
  turns_[turn_].reset();
  used_ = 0;
}

PinnedArena& Staging::room(size_t bytes) {
  PinnedArena& memory = turns_[turn_];
  if (used_ > 0 && used_ + bytes > kTurnBytes) {
    ops_.wait(ops_.mark());
    memory.reset();
    used_ = 0;
  }
  used_ += bytes;
  return memory;
}

}  // namespace skiff::sample
