#include "kv/place_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <random>

namespace skiff::kv {
namespace {

// Against a list from cold to hot and a map.
TEST(PlaceIndex, AgreesWithAListAndAMap) {
  std::mt19937 rng(3);
  for (int round = 0; round < 50; ++round) {
    const int n = 1 + static_cast<int>(rng() % 8);
    PlaceIndex index(n, rng());
    std::list<int> line;  // places that nobody pins
    std::map<BlockKey, int> by_key;
    std::map<int, BlockKey> keys;
    std::vector<int> pins(static_cast<size_t>(n));
    std::vector<bool> hot(static_cast<size_t>(n), true);
    for (int place = n; place-- > 0;) line.push_front(place);
    const auto line_up = [&](int place) {
      line.remove(place);
      if (pins[static_cast<size_t>(place)] > 0) return;
      const bool back = keys.contains(place) && hot[static_cast<size_t>(place)];
      line.insert(back ? line.end() : line.begin(), place);
    };
    const auto forget = [&](int place) {
      if (!keys.contains(place)) return;
      by_key.erase(keys[place]);
      keys.erase(place);
      line_up(place);
    };
    for (int i = 0; i < 300; ++i) {
      BlockKey key{};
      key[0] = static_cast<uint8_t>(rng() % 12);
      const int place = static_cast<int>(rng() % static_cast<unsigned>(n));
      const auto at = static_cast<size_t>(place);
      switch (rng() % 6) {
        case 0:
        case 1: {
          if (by_key.contains(key)) break;
          const int want = line.empty() ? PlaceIndex::kNone : line.front();
          ASSERT_EQ(index.put(key), want);
          if (want == PlaceIndex::kNone) break;
          forget(want);
          by_key[key] = want;
          keys[want] = key;
          hot[static_cast<size_t>(want)] = true;
          ++pins[static_cast<size_t>(want)];
          line.remove(want);
          ASSERT_FALSE(index.ready(want));
          index.set_ready(want);
          break;
        }
        case 2:
          if (pins[at] == 0) break;
          index.unpin(place);
          if (--pins[at] == 0) line_up(place);
          break;
        case 3:
          index.pin(place);
          ++pins[at];
          line.remove(place);
          break;
        case 4:
          hot[at] = rng() % 2;
          hot[at] ? index.touch(place) : index.cool(place);
          line_up(place);
          break;
        default:
          index.erase(place);
          forget(place);
      }
      ASSERT_EQ(index.count(), static_cast<int>(by_key.size()));
      for (uint8_t b = 0; b < 12; ++b) {
        key[0] = b;
        const auto found = by_key.find(key);
        ASSERT_EQ(index.find(key), found == by_key.end() ? PlaceIndex::kNone : found->second);
      }
    }
  }
}

}  // namespace
}  // namespace skiff::kv
