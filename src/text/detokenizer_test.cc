#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"
#include "text/pieces_testing.h"

namespace skiff::text {
namespace {

struct Reply {
  std::string text, stop;
  bool stopped = false;
};

// Streams all but the special token and checks the invariants after every push.
Reply stream(const Pieces& pieces, const DetokenizerOptions& options) {
  Detokenizer detokenizer(pieces, options);
  Reply reply;
  for (int token = 0; token + 1 < pieces.vocab_size(); ++token) {
    const bool before = detokenizer.stopped();
    const std::string text = detokenizer.push(token);
    EXPECT_TRUE(is_valid_utf8(text)) << text;
    EXPECT_TRUE(!before || text.empty());
    reply.text += text;
  }
  reply.text += detokenizer.flush();
  EXPECT_EQ(detokenizer.flush(), "");
  reply.stopped = detokenizer.stopped();
  reply.stop = detokenizer.stop_found();
  return reply;
}

// The definition: cuts the text at the stop string that is complete first, the longest of those
// that end there.
Reply cut(const std::string& text, const std::vector<std::string>& stops, bool include_stop) {
  for (size_t end = 1; end <= text.size(); ++end) {
    const std::string_view so_far = std::string_view(text).substr(0, end);
    std::string_view found;
    for (const std::string& stop : stops)
      if (so_far.ends_with(stop) && stop.size() > found.size()) found = stop;
    if (found.empty()) continue;
    const size_t keep = include_stop ? end : end - found.size();
    return {text.substr(0, keep), std::string(found), true};
  }
  return {text, "", false};
}

std::vector<std::string> cut_randomly(const std::string& bytes, std::mt19937& random) {
  std::vector<std::string> pieces;
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = random() % 5;  // sometimes nothing
    pieces.push_back(bytes.substr(at, size));
    at += size;
  }
  pieces.push_back("<special>");
  return pieces;
}

TEST(Detokenizer, EqualsTheDefinitionHoweverTextIsCut) {
  const std::vector<std::string> letters = {"a", "b", "é", "世", "😀", "\n"};
  std::mt19937 random(3);
  const auto word = [&](size_t most) {
    std::string out;
    for (size_t i = random() % (most + 1); i > 0; --i) out += letters[random() % letters.size()];
    return out;
  };
  int stopped = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    std::vector<std::string> stops;
    for (size_t i = random() % 4; i > 0; --i) stops.push_back(word(5));
    const DetokenizerOptions options{.stops = stops, .include_stop = random() % 2 == 0};
    const std::string text = word(40);
    const Reply expected = cut(text, stops, options.include_stop);
    const Reply reply = stream(Pieces(cut_randomly(text, random)), options);
    EXPECT_EQ(reply.text, expected.text);
    EXPECT_EQ(reply.stop, expected.stop);
    EXPECT_EQ(reply.stopped, expected.stopped);
    stopped += reply.stopped;
  }
  EXPECT_GT(stopped, 5000);
  EXPECT_LT(stopped, 19000);
}

TEST(Detokenizer, AStopCountsOnlyBehindMinTokens) {
  const std::vector<std::string> tokens = {"a", "b", "c", "a", "b", "d", "</s>"};
  const auto said = [&](int min_tokens) {
    return stream(Pieces(tokens), {.stops = {"ab"}, .min_tokens = min_tokens}).text;
  };
  EXPECT_EQ(said(0), "");
  EXPECT_EQ(said(1), "abc") << "the first stop began too early";
  EXPECT_EQ(said(3), "abc");
  EXPECT_EQ(said(4), "abcabd");
}

TEST(Detokenizer, RandomBytesBecomeWhatUtf8SanitizedSays) {
  const std::string common = "\xF0\x9F\x98\x80\xE4\xB8\xC3 a\xED\xA0";
  std::mt19937 random(4);
  for (int trial = 0; trial < 20000; ++trial) {
    std::string bytes(random() % 30, '\0');
    for (char& c : bytes)
      c = random() % 4 ? common[random() % common.size()] : static_cast<char>(random());
    EXPECT_EQ(stream(Pieces(cut_randomly(bytes, random)), {}).text, utf8_sanitized(bytes));
  }
}

// Text that can no longer be part of a stop string is returned at once.
TEST(Detokenizer, HoldsNoMoreThanItMust) {
  const Pieces pieces({"Hello w", "or", "ld \xF0\x9F", "\x98\x80", "x\nUs", "er", "!", "<eos>"});
  Detokenizer detokenizer(pieces, {.stops = {"world!", "\nUser:"}});
  EXPECT_EQ(detokenizer.push(0), "Hello ");
  EXPECT_EQ(detokenizer.push(1), "");
  EXPECT_EQ(detokenizer.push(2), "world ");
  EXPECT_EQ(detokenizer.push(3), "😀");
  EXPECT_EQ(detokenizer.push(4), "x");
  EXPECT_EQ(detokenizer.push(7), "");  // special tokens are skipped
  EXPECT_EQ(detokenizer.push(5), "");
  EXPECT_EQ(detokenizer.push(6), "\nUser!");
  EXPECT_EQ(detokenizer.flush(), "");
}

TEST(Detokenizer, SpecialTokensOnRequest) {
  const Pieces pieces({"a", "<eos>"});
  Detokenizer shown(pieces, {.stops = {"<eos>"}, .skip_special = false});
  EXPECT_EQ(shown.push(0), "a");
  EXPECT_EQ(shown.push(1), "");
  EXPECT_TRUE(shown.stopped());
  EXPECT_EQ(shown.stop_found(), "<eos>");
}

TEST(Detokenizer, UnfinishedBytesAtTheEnd) {
  EXPECT_EQ(stream(Pieces({"a", "\xF0\x9F", "<s>"}), {}).text, "a\uFFFD");
  EXPECT_EQ(stream(Pieces({"a", "\xF0\x9F", "<s>"}), {.stops = {"\uFFFD"}}).text, "a");
  EXPECT_EQ(stream(Pieces({"\x80\x80", "<s>"}), {.stops = {"\x80", ""}}).text, "\uFFFD\uFFFD");
}

TEST(Detokenizer, ManyLongStopsStayLinear) {
  std::vector<std::string> stops;
  stops.reserve(100);
  for (int i = 0; i < 100; ++i) stops.push_back(std::string(2000, 'a') + std::to_string(i));
  const std::string text(100000, 'a');
  const Pieces pieces({text, "<s>"});
  Detokenizer detokenizer(pieces, {.stops = stops});
  EXPECT_EQ(detokenizer.push(0).size(), text.size() - 2000);
  EXPECT_EQ(detokenizer.flush().size(), 2000u);
}

}  // namespace
}  // namespace skiff::text
