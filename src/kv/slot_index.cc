#include "kv/slot_index.h"

#include "base/check.h"

namespace skiff {

SlotIndex::SlotIndex(int size, uint64_t seed)
    : end_(size), slots_(static_cast<size_t>(size) + 1), places_(0, BlockKeyHash{seed}) {
  at(end_).before = at(end_).after = end_;
  for (int slot = size; slot-- > 0;) join(slot);
}

int SlotIndex::find(const BlockKey& key) const {
  const auto found = places_.find(key);
  return found == places_.end() ? kNone : found->second;
}

int SlotIndex::put(const BlockKey& key) {
  const int slot = at(end_).after;
  if (slot == end_) return kNone;
  erase(slot);
  pin(slot);
  const bool is_new = places_.emplace(key, slot).second;
  SKIFF_CHECK(is_new, "the key has a slot already");
  at(slot).key = key;
  at(slot).used = at(slot).hot = true;
  return slot;
}

void SlotIndex::assign(int slot, const BlockKey& key) {
  SKIFF_CHECK(!pinned(slot) && !in_use(slot), "slot {} is taken", slot);
  const bool is_new = places_.emplace(key, slot).second;
  SKIFF_CHECK(is_new, "the key has a slot already");
  at(slot).key = key;
  at(slot).used = at(slot).ready = true;
  touch(slot);
}

void SlotIndex::erase(int slot) {
  if (!at(slot).used) return;
  places_.erase(at(slot).key);
  at(slot).used = at(slot).ready = false;
  move(slot);
}

void SlotIndex::pin(int slot) {
  if (at(slot).pins++ == 0) leave(slot);
}

void SlotIndex::unpin(int slot) {
  SKIFF_CHECK(pinned(slot), "slot {} is not pinned", slot);
  if (--at(slot).pins == 0) join(slot);
}

void SlotIndex::touch(int slot) {
  at(slot).hot = true;
  move(slot);
}

void SlotIndex::cool(int slot) {
  at(slot).hot = false;
  move(slot);
}

void SlotIndex::join(int slot) {
  Slot& s = at(slot);
  const int after = s.used && s.hot ? end_ : at(end_).after;
  s.after = after;
  s.before = at(after).before;
  at(s.before).after = at(after).before = slot;
}

void SlotIndex::leave(int slot) {
  const Slot& s = at(slot);
  at(s.before).after = s.after;
  at(s.after).before = s.before;
}

void SlotIndex::move(int slot) {
  if (pinned(slot)) return;
  leave(slot);
  join(slot);
}

}  // namespace skiff
