#include "base/json_owner.h"

#include <gtest/gtest.h>

#include <new>
#include <string>

#include "base/few_allocations_testing.h"

namespace skiff {
namespace {

using testing::allowed_allocations;

std::string long_lists() {
  std::string out = R"({"a":[1.5,"a string that is too long to be kept inside",[[{"b":[)";
  for (int i = 0; i < 200; ++i) out += "7,";
  out += "7]}]]],\"o\":{";
  for (int i = 0; i < 100; ++i) out += fmt::format("\"{}\":[{}],", i, i);
  return out + "\"end\":null}}";
}

TEST(JsonOwner, EndsWithoutMemory) {
  auto parsed = parse_ordered_json(long_lists());
  ASSERT_TRUE(parsed);
  {
    JsonOwner<OrderedJson> owner(std::move(*parsed));
    EXPECT_EQ((*owner)["o"]["77"][0], 77);
    allowed_allocations = 0;
  }
  allowed_allocations = -1;
  auto again = parse_json(long_lists());
  ASSERT_TRUE(again);
  allowed_allocations = 0;
  dismantle(*again);
  allowed_allocations = -1;
  EXPECT_TRUE(again->empty());
}

// Wherever parsing runs out of memory, it says so; what has been built so far must not need more.
TEST(JsonOwner, ParsingThatFailsEndsWithoutMemory) {
  const std::string text = long_lists();
  int failed = 0;
  for (bool parsed = false; !parsed;) {
    allowed_allocations = failed;
    try {
      const JsonOwner<OrderedJson> owner(std::move(*parse_ordered_json(text)));
      parsed = true;
      allowed_allocations = 0;
    } catch (const std::bad_alloc&) {
      ++failed;
    }
    allowed_allocations = -1;
  }
  EXPECT_GT(failed, 300);
}

}  // namespace
}  // namespace skiff
