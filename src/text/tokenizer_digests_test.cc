// Compares real tokenizers and small ones of every kind (tests/text/made) with digests of the
// reference packages' results on more than a thousand hard strings and on real texts
// (tests/text/digests.json, written by tools/text/make_vectors.py, which says what a digest is). To
// see single mismatches run tools/text/compare_tokenizers.py.
#include <gtest/gtest.h>

#include <random>

#include "text/detokenizer.h"
#include "text/tokenizer_data_testing.h"

namespace skiff::text {
namespace {

class Digest {
 public:
  void ids(const std::vector<int32_t>& ids) {
    const int32_t end = -1;
    add(ids.data(), 4 * ids.size());
    add(&end, 4);
  }
  void text(const std::string& text) {
    add(text.data(), text.size());
    add("\xFF", 1);
  }
  uint32_t value() const { return static_cast<uint32_t>(crc_); }

 private:
  void add(const void* data, size_t size) {
    if (size > 0) crc_ = crc32_z(crc_, static_cast<const Bytef*>(data), size);
  }
  uLong crc_ = crc32(0, nullptr, 0);
};

const std::vector<std::string>& hard_strings() {
  static const auto strings =
      read_json_file((kVectors / "hard_strings.json").string()).get<std::vector<std::string>>();
  return strings;
}

Json digests_of(const std::string& name) {
  return read_json_file((kVectors / "digests.json").string()).at(name);
}

void expect_digests(const Tokenizer& tokenizer, const Json& expected) {
  constexpr size_t kBlock = 100;
  const auto& strings = hard_strings();
  ASSERT_GT(strings.size(), 1000u);
  for (size_t begin = 0; begin < strings.size(); begin += kBlock) {
    Digest ids, decoded;
    for (size_t i = begin; i < std::min(begin + kBlock, strings.size()); ++i) {
      const auto made = tokenizer.encode(strings[i], {});
      ids.ids(made);
      decoded.text(tokenizer.decode(made, true));
    }
    EXPECT_EQ(ids.value(), expected["ids"].at(begin / kBlock)) << "strings from " << begin;
    EXPECT_EQ(decoded.value(), expected["decoded"].at(begin / kBlock)) << "strings from " << begin;
  }
}

// The number of tokens of a real text's beginning, and their digest.
Json digest_of_text(const Tokenizer& tokenizer, const std::string& name) {
  constexpr size_t kBytes = 200'000;
  std::string text = contents(kData / "text" / name).substr(0, kBytes);
  text.resize(text.rfind('\n'));
  const auto ids = tokenizer.encode(text, {});
  Digest digest;
  digest.ids(ids);
  digest.text(tokenizer.decode(ids, true));
  return Json::array({ids.size(), digest.value()});
}

std::string from_hex(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i < hex.size(); i += 2)
    out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return out;
}

// Texts that are not UTF-8, as the library accepts them.
uint32_t digest_of_lone_bytes(const Tokenizer& tokenizer) {
  Digest digest;
  for (const Json& hex : digests_of("lone bytes"))
    digest.ids(tokenizer.encode(from_hex(hex), {.add_special = false, .parse_special = false}));
  return digest.value();
}

bool equal_but_for_a_space(const std::string& stream, const std::string& decoded) {
  return stream == decoded || stream == " " + decoded;
}

// After every token the streamed text is a prefix of the whole text; where a character ends, it
// equals the decoded tokens so far. (Inside a character formats differ in their U+FFFD.)
void expect_streams_equal_decoding(const Tokenizer& tokenizer) {
  const auto& strings = hard_strings();
  for (size_t i = 0; i < strings.size(); i += 9) {
    const auto ids = tokenizer.encode(strings[i], {});
    const std::string text = tokenizer.decode(ids, true);
    Detokenizer detokenizer(tokenizer, {});
    std::string stream, bytes;
    for (size_t end = 1; end <= ids.size(); ++end) {
      const int32_t token = ids[end - 1];
      stream += detokenizer.push(token);
      if (!tokenizer.is_special(token)) bytes += tokenizer.piece(token);
      const bool begins = text.starts_with(stream) || (" " + text).starts_with(stream);
      EXPECT_TRUE(begins) << Json(strings[i]) << " after " << end << ": " << Json(stream);
      if (end > 80 || !is_valid_utf8(bytes)) continue;
      const std::string decoded = tokenizer.decode(std::span(ids).first(end), true);
      EXPECT_TRUE(equal_but_for_a_space(stream, decoded))
          << Json(strings[i]) << " after " << end << ": " << Json(stream) << Json(decoded);
    }
  }
}

class Digests : public RealTokenizer {};

TEST_P(Digests, EqualTheReference) {
  const Json digests = digests_of(GetParam());
  expect_digests(*tokenizer_, digests);
  for (const auto& [name, expected] : digests["texts"].items())
    EXPECT_EQ(digest_of_text(*tokenizer_, name), expected) << name;
  EXPECT_TRUE(!digests.contains("bytes") || digests["bytes"] == digest_of_lone_bytes(*tokenizer_));
  expect_streams_equal_decoding(*tokenizer_);
}

INSTANTIATE_TEST_SUITE_P(Models, Digests, kRealTokenizers,
                         [](const auto& info) { return test_name(info.param); });

class MadeDigests : public testing::TestWithParam<std::string> {};

TEST_P(MadeDigests, HardStrings) {
  const auto tokenizer = load_tokenizer((kVectors / "made" / (GetParam() + ".json")).string());
  ASSERT_TRUE(tokenizer) << tokenizer.error().what;
  expect_digests(**tokenizer, digests_of("made/" + GetParam()));
}

std::vector<std::string> made_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kVectors / "made"))
    names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Steps, MadeDigests, testing::ValuesIn(made_names()),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace skiff::text
