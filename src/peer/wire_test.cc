#include "peer/wire.h"

#include <gtest/gtest.h>

#include <cstring>

namespace skiff::peer {
namespace {

kv::BlockKey key_of(uint8_t byte) {
  kv::BlockKey key{};
  key.fill(byte);
  return key;
}

Open full_open() {
  Open open;
  open.lease = 7;
  open.priority = -3;
  open.keys = {key_of(1), key_of(2)};
  open.prompt = {5, 6, 7};
  open.salt = "salt";
  open.extras = {{.begin = 1, .end = 2, .identity = "image"}};
  return open;
}

std::string frame(const Message& message) {
  std::string out;
  write(message, out);
  return out;
}

TEST(PeerWire, WhatIsWrittenIsRead) {
  const Message all[] = {Hello{.nonce = random_nonce()},
                         Login{random_nonce(), random_nonce(), {{"name", "value"}, {"", ""}}},
                         Welcome{random_nonce(), 30000, "name"},
                         Refused{"why"},
                         full_open(),
                         Close{4},
                         Read{.job = 1, .lease = 2, .key = key_of(3)},
                         Renew{},
                         Block{.job = 1, .key = key_of(3), .low = 4, .high = 5},
                         Miss{.job = 1, .why = 2},
                         Mapped{},
                         Here{.job = 1, .key = key_of(3), .place = 6, .low = 4, .high = 5},
                         Taken{.job = 1}};
  static_assert(std::size(all) == std::variant_size_v<Message>);
  std::string text;
  for (const Message& message : all) write(message, text);
  std::string_view in = text;
  for (const Message& message : all) {
    const auto read = take(in, kMaxFrame);
    ASSERT_TRUE(read && *read) << message.index();
    EXPECT_EQ((*read)->index(), message.index());
    EXPECT_EQ(frame(**read), frame(message));
  }
  EXPECT_TRUE(in.empty());
}

TEST(PeerWire, AFrameThatIsNotCompleteIsWaitedFor) {
  const std::string whole = frame(full_open());
  for (size_t n = 0; n < whole.size(); ++n) {
    std::string_view in(whole.data(), n);
    const auto read = take(in, kMaxFrame);
    ASSERT_TRUE(read) << n;
    EXPECT_FALSE(*read) << n;
    EXPECT_EQ(in.size(), n);
  }
}

TEST(PeerWire, WhatAFrameLacksIsNeverMoreThanItHas) {
  const std::string whole = frame(full_open());
  for (size_t size = 0; size < whole.size(); ++size) {
    const size_t lacks = lacking(std::string_view(whole).substr(0, size));
    EXPECT_GT(lacks, 0u);
    EXPECT_LE(size + lacks, whole.size());
  }
  EXPECT_EQ(lacking(whole), 0u);
  EXPECT_EQ(lacking(whole + "more"), 0u);
}

TEST(PeerWire, BoundsAreKept) {
  const auto fails = [](const std::string& text, size_t limit = kMaxFrame) {
    std::string_view in = text;
    return !take(in, limit);
  };
  const auto sealed = [](uint8_t kind, const std::string& fields) {
    std::string out;
    write_frame(kind, fields, out);
    return out;
  };
  constexpr size_t kHead = 13;
  const std::string whole = frame(full_open()), fields = whole.substr(kHead);
  const auto kind = static_cast<uint8_t>(whole[4]);
  EXPECT_EQ(sealed(kind, fields), whole);
  EXPECT_TRUE(fails(whole, fields.size() - 1));
  EXPECT_FALSE(fails(whole, fields.size()));
  EXPECT_TRUE(fails(sealed(99, fields))) << "no such kind";
  std::string wrong = fields;
  wrong[12 + 3] = 0x7f;
  EXPECT_TRUE(fails(sealed(kind, wrong))) << "more keys than bytes";
  EXPECT_TRUE(fails(sealed(kind, fields + "x"))) << "bytes behind the last field";
  EXPECT_TRUE(fails(std::string("\xff\xff\xff\xff\x01", 5))) << "a long frame is not waited for";
}

TEST(PeerWire, AByteThatWasChangedIsNoticed) {
  const std::string whole = frame(full_open());
  for (size_t i = 0; i < whole.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string wrong = whole;
      wrong[i] = static_cast<char>(wrong[i] ^ (1 << bit));
      std::string_view in = wrong;
      const auto read = take(in, kMaxFrame);
      EXPECT_FALSE(read && *read) << "byte " << i;
    }
}

TEST(PeerWire, DifferencesAreNamedWithBothValues) {
  const Facts here = {{"the build", "a"}, {"--block-size", "64"}};
  EXPECT_EQ(difference(here, here), "");
  const std::string why = difference(here, {{"the build", "a"}, {"--block-size", "32"}});
  EXPECT_NE(why.find("--block-size"), std::string::npos);
  EXPECT_NE(why.find("64"), std::string::npos);
  EXPECT_NE(why.find("32"), std::string::npos);
  EXPECT_NE(difference(here, {{"the build", "a"}}), "");
  EXPECT_NE(difference(here, {}), "");
  const std::string forged = difference(here, {{"the build", "b\nall is well"}});
  EXPECT_EQ(forged.find('\n'), std::string::npos) << "one line, whatever a stranger says";
}

TEST(PeerWire, AProofIsOfKeySideAndBothNonces) {
  const Digest a = random_nonce(), b = random_nonce();
  const Digest right = proof("key", "decode", a, b);
  EXPECT_TRUE(same(right, proof("key", "decode", a, b)));
  EXPECT_FALSE(same(right, proof("kez", "decode", a, b)));
  EXPECT_FALSE(same(right, proof("key", "prefill", a, b)));
  EXPECT_FALSE(same(right, proof("key", "decode", b, a)));
  EXPECT_FALSE(same(right, proof("key", "decode", random_nonce(), b)));
  EXPECT_FALSE(same(right, proof("key", "decode", a, random_nonce())));
}

}  // namespace
}  // namespace skiff::peer
