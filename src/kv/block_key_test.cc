#include "kv/block_key.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "kv/cache_testing.h"

namespace skiff::kv {
namespace {

TEST(BlockKey, DependsOnAllThatTheContentsDependOn) {
  const Tokens ab{1, 2}, cd{3, 4};
  const BlockKey root = root_key("model", "salt");
  const std::set<BlockKey> keys{root,
                                root_key("model2", "salt"),
                                root_key("models", "alt"),
                                root_key("model", ""),
                                child_key(root, ab),
                                child_key(root, cd),
                                child_key(child_key(root, ab), cd),
                                child_key(child_key(root, cd), ab),
                                child_key(root, ab, "cat"),
                                child_key(root, ab, "dog"),
                                child_key(child_key(root, ab, "cat"), cd),
                                partial_key(root, ab),
                                partial_key(root, cd),
                                partial_key(root, ab, "cat"),
                                partial_key(child_key(root, ab), cd)};
  EXPECT_EQ(keys.size(), 15u);
  EXPECT_EQ(child_key(root, ab), child_key(root_key("model", "salt"), Tokens{1, 2}));
  const BlockKey empty = sha256({});  // FIPS 180-4
  EXPECT_EQ(empty[0], 0xe3);
  EXPECT_EQ(empty[31], 0x55);
}

// What follows the tokens of a partial block is no token, even if it reads like one.
TEST(BlockKey, APartialBlockEndsWithItsTokens) {
  const BlockKey root = root_key("model", "");
  const Token c = 0x64636261;
  EXPECT_NE(partial_key(root, Tokens{1, c}), partial_key(root, Tokens{1}, "abcd"));
  EXPECT_NE(partial_key(root, Tokens{1, 2}), partial_key(root, Tokens{1}));
  EXPECT_EQ(partial_key(root, Tokens{1, 2}), partial_key(root_key("model", ""), Tokens{1, 2}));
}

// Cache files outlive builds: the key of a block without extras may not change.
TEST(BlockKey, WithoutExtrasIsWhatItWas) {
  const BlockKey key = child_key(root_key("model", "salt"), Tokens{1, 2, 3});
  std::string hex;
  for (const uint8_t byte : key) hex += fmt::format("{:02x}", byte);
  EXPECT_EQ(hex, "2e133c147e5159a85a78f1590b1eea3bbe97affe8e6c2f9e20c69ccba5b6a82e");
  EXPECT_EQ(extra_of({}, 0, 64), "");
  EXPECT_EQ(extra_of(with_image("cat"), 0, 2), "");
  EXPECT_EQ(extra_of(with_image("cat"), 5, 9), "");
  EXPECT_NE(extra_of(with_image("cat"), 4, 9), "");
}

// Two lists of extras give one text only if they are the same list.
TEST(BlockKey, ExtrasAreNotRunTogether) {
  const auto text = [](std::vector<CacheExtra> extras) {
    return extra_of({.salt = {}, .extras = std::move(extras)}, 0, 8);
  };
  const std::set<std::string> texts{
      text({{.identity = "ab"}, {.identity = "c"}}), text({{.identity = "a"}, {.identity = "bc"}}),
      text({{.identity = "abc"}}), text({{.end = 9, .identity = "abc"}}),
      text({{.begin = 1, .identity = "abc"}})};
  EXPECT_EQ(texts.size(), 5u);
}

}  // namespace
}  // namespace skiff::kv
