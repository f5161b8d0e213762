#include "text/token_index.h"

#include <algorithm>

#include "base/check.h"
#include "text/text_hash.h"

namespace skiff::text {
namespace {

uint32_t short_hash(std::string_view text) { return static_cast<uint32_t>(hash_text(text)); }

}  // namespace

void TokenIndex::reserve(size_t tokens) {
  entries_.reserve(tokens);
  size_t slots = 16;
  while (slots < 2 * tokens) slots *= 2;
  if (slots > slots_.size()) resize(slots);
}

void TokenIndex::resize(size_t slots) {
  std::vector<Slot> old(slots, Slot{0, kFree});
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.entry == kFree) continue;
    size_t at = slot.hash & (slots - 1);
    while (slots_[at].entry != kFree) at = (at + 1) & (slots - 1);
    slots_[at] = slot;
  }
}

// Returns the index of `text`, or of the free slot where it would be.
size_t TokenIndex::place(std::string_view wanted, uint32_t hash) const {
  size_t at = hash & (slots_.size() - 1);
  while (slots_[at].entry != kFree && (slots_[at].hash != hash || text(slots_[at].entry) != wanted))
    at = (at + 1) & (slots_.size() - 1);
  return at;
}

bool TokenIndex::add(std::string_view text, int32_t id) {
  if (2 * (entries_.size() + 1) > slots_.size()) resize(std::max<size_t>(16, 2 * slots_.size()));
  const uint32_t hash = short_hash(text);
  Slot& slot = slots_[place(text, hash)];
  if (slot.entry != kFree) return false;
  SKIFF_CHECK(bytes_.size() + text.size() < kFree, "4 GiB of token texts");
  slot = {hash, static_cast<uint32_t>(entries_.size())};
  entries_.push_back(
      {static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(text.size()), id});
  bytes_ += text;
  return true;
}

int32_t TokenIndex::find(std::string_view text) const {
  if (slots_.empty()) return -1;
  const Slot& slot = slots_[place(text, short_hash(text))];
  return slot.entry == kFree ? -1 : entries_[slot.entry].id;
}

}  // namespace skiff::text
