#include "engine/block_copies.h"

#include <algorithm>

namespace skiff::engine {

BlockCopies::BlockCopies(model::HostBlocks* host, std::span<const KvLayer> kv, Ops& ops)
    : host_(host),
      kv_(kv),
      ops_(ops),
      loaded_by_(host == nullptr ? 0 : static_cast<size_t>(kv.front().k.dim[0]), 0) {}

// A load waits for all operations before it, and for earlier loads. So what is left to be ordered
// are saves and rows behind loads.
BlockCopies::Begun BlockCopies::start(const StepPlan& plan) {
  Begun begun;
  const bool copies = !plan.saves.empty() || !plan.loads.empty();
  SKIFF_CHECK(host_ != nullptr || !copies, "there is no host memory to copy blocks to");
  if (!plan.saves.empty()) save(plan, begun);
  if (!plan.loads.empty()) load(plan, begun);
  if (last_ == ordered_) return begun;
  uint64_t needed = 0;
  for (const BlockId page : plan.pages) needed = std::max(needed, loads_of(page));
  wait_for(needed);
  begun.beside = begun.loads && ordered_ < begun.loads->number;
  return begun;
}

void BlockCopies::save(const StepPlan& plan, Begun& begun) {
  uint64_t needed = 0;
  for (const BlockCopy& copy : plan.saves) needed = std::max(needed, loads_of(copy.block));
  wait_for(needed);
  const uint64_t begin = ops_.stamp();
  for (const BlockCopy& copy : plan.saves) host_->save(ops_, kv_, copy.block, copy.host);
  begun.saves = {begin, ops_.stamp()};
}

void BlockCopies::load(const StepPlan& plan, Begun& begun) {
  list_.clear();
  for (const BlockCopy& copy : plan.loads) list_.push_back(host_->load(kv_, copy.host, copy.block));
  begun.loads = ops_.copy_beside(list_);
  if (begun.loads->number == 0) return;
  last_ = begun.loads->number;
  for (const BlockCopy& copy : plan.loads) loaded_by_[static_cast<size_t>(copy.block)] = last_;
}

void BlockCopies::wait_for(uint64_t number) {
  if (number <= ordered_) return;
  ops_.after(number);
  ordered_ = number;
}

void BlockCopies::finish(const Begun& begun, StepResult& result) {
  double copies = 0, beside = 0;
  if (begun.saves) copies += ops_.seconds_between(begun.saves->first, begun.saves->second);
  if (begun.loads) {
    if (begun.loads->number > 0) ops_.wait_copies(begun.loads->number);
    ordered_ = std::max(ordered_, begun.loads->number);
    const double loads = ops_.seconds_between(begun.loads->begin, begun.loads->end);
    (begun.beside ? beside : copies) += loads;
  }
  result.copy_seconds = copies + beside;
  result.seconds += beside;
}

}  // namespace skiff::engine
