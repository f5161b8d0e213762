#include "kv/place_index.h"

#include "base/check.h"

namespace skiff::kv {

PlaceIndex::PlaceIndex(int size, uint64_t seed)
    : end_(size), places_(static_cast<size_t>(size) + 1), by_key_(0, BlockKeyHash{seed}) {
  at(end_).before = at(end_).after = end_;
  for (int place = size; place-- > 0;) join(place);
}

int PlaceIndex::find(const BlockKey& key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? kNone : found->second;
}

int PlaceIndex::put(const BlockKey& key) {
  const int place = at(end_).after;
  if (place == end_) return kNone;
  erase(place);
  pin(place);
  const bool is_new = by_key_.emplace(key, place).second;
  SKIFF_CHECK(is_new, "the key has a place already");
  at(place).key = key;
  at(place).used = at(place).hot = true;
  return place;
}

void PlaceIndex::assign(int place, const BlockKey& key) {
  SKIFF_CHECK(!pinned(place) && !in_use(place), "place {} is taken", place);
  const bool is_new = by_key_.emplace(key, place).second;
  SKIFF_CHECK(is_new, "the key has a place already");
  at(place).key = key;
  at(place).used = at(place).ready = true;
  touch(place);
}

void PlaceIndex::erase(int place) {
  if (!at(place).used) return;
  by_key_.erase(at(place).key);
  at(place).used = at(place).ready = false;
  move(place);
}

void PlaceIndex::pin(int place) {
  if (at(place).pins++ == 0) leave(place);
}

void PlaceIndex::unpin(int place) {
  SKIFF_CHECK(pinned(place), "place {} is not pinned", place);
  if (--at(place).pins == 0) join(place);
}

void PlaceIndex::touch(int place) {
  at(place).hot = true;
  move(place);
}

void PlaceIndex::cool(int place) {
  at(place).hot = false;
  move(place);
}

void PlaceIndex::join(int place) {
  Place& s = at(place);
  const int after = s.used && s.hot ? end_ : at(end_).after;
  s.after = after;
  s.before = at(after).before;
  at(s.before).after = at(after).before = place;
}

void PlaceIndex::leave(int place) {
  const Place& s = at(place);
  at(s.before).after = s.after;
  at(s.after).before = s.before;
}

void PlaceIndex::move(int place) {
  if (pinned(place)) return;
  leave(place);
  join(place);
}

}  // namespace skiff::kv
