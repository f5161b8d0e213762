#include "text/bpe.h"

#include <gtest/gtest.h>

#include <random>

#include "text/tokenizer_testing.h"

namespace skiff::text {
namespace {

using Ids = std::vector<int32_t>;

TEST(TinyByteLevel, MergesByRank) {
  const auto tokenizer = tokenizer_of(tiny_tokenizer_json());
  EXPECT_EQ(encode_plainly(*tokenizer, " the thing"), (Ids{258, 256, 'h', 260}));
  EXPECT_EQ(encode_plainly(*tokenizer, "inging"), (Ids{260, 260}));
  EXPECT_EQ(encode_plainly(*tokenizer, "\xC3\xA9"), (Ids{0xC3, 0xA9}));
  EXPECT_EQ(encode_plainly(*tokenizer, ""), Ids{});
}

TEST(TinyByteLevel, SpecialTokensAndBack) {
  const auto tokenizer = tokenizer_of(tiny_tokenizer_json());
  const Ids ids = tokenizer->encode("he<end>he", {});
  EXPECT_EQ(ids, (Ids{257, 261, 257}));
  EXPECT_EQ(tokenizer->encode("<end>", {true, false}), (Ids{'<', 'e', 'n', 'd', '>'}));
  EXPECT_EQ(tokenizer->decode(ids, true), "hehe");
  EXPECT_EQ(tokenizer->decode(ids, false), "he<end>he");
  EXPECT_EQ(tokenizer->piece(258), " the");
  EXPECT_EQ(tokenizer->piece(261), "<end>");
  EXPECT_EQ(tokenizer->piece(-1), "");
  EXPECT_EQ(tokenizer->piece(1 << 20), "");
  EXPECT_TRUE(tokenizer->is_special(261));
  EXPECT_FALSE(tokenizer->is_special(257));
  EXPECT_EQ(tokenizer->find("<end>"), 261);
  EXPECT_EQ(tokenizer->find("Ġthe"), 258);
  EXPECT_EQ(tokenizer->find("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer->vocab_size(), 262);
}

TEST(TinyMetaspace, PrefixFallbackAndBos) {
  const auto tokenizer = tokenizer_of(tiny_metaspace_json());
  EXPECT_EQ(tokenizer->encode("ab a", {}), (Ids{1, 264, 262}));
  EXPECT_EQ(encode_plainly(*tokenizer, "\xC3\xA9"), (Ids{259, 3 + 0xC3, 3 + 0xA9}));
  EXPECT_EQ(encode_plainly(*tokenizer, "b</s>b"), (Ids{259, 261, 2, 259, 261}));
  EXPECT_EQ(tokenizer->decode(Ids{1, 264, 262}, true), "ab a");
  EXPECT_EQ(tokenizer->decode(Ids{3 + 0xC3, 260}, true), "\uFFFDa");
  EXPECT_EQ(tokenizer->piece(264), " ab");
  EXPECT_EQ(tokenizer->piece(3 + 0xC3), "\xC3");
}

TEST(TinyByteLevel, AnyBytesRoundTripAsValidText) {
  const auto byte_level = tokenizer_of(tiny_tokenizer_json());
  const auto metaspace = tokenizer_of(tiny_metaspace_json());
  std::mt19937 random(11);
  for (int trial = 0; trial < 2000; ++trial) {
    std::string text(random() % 40, '\0');
    for (char& c : text) c = static_cast<char>(trial % 2 ? random() : random() % 128);
    for (const auto* tokenizer : {&byte_level, &metaspace}) {
      const Ids ids = (*tokenizer)->encode(text, {true, false});
      EXPECT_EQ((*tokenizer)->decode(ids, true), utf8_sanitized(text));
    }
  }
}

// The definition of BPE, in O(n^2): merge the pair of the lowest rank, the leftmost first, until no
// pair merges.
Ids merged_slowly(const MergeTable& merges, Ids tokens) {
  while (true) {
    size_t best = tokens.size();
    Merge chosen;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const Merge merge = merges.find(tokens[i], tokens[i + 1]);
      if (merge.rank < 0 || (chosen.rank >= 0 && merge.rank >= chosen.rank)) continue;
      best = i;
      chosen = merge;
    }
    if (best == tokens.size()) return tokens;
    tokens[best] = chosen.token;
    tokens.erase(tokens.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

// Random merges over three letters, each making a token that no other merge makes: then the order
// of merges is defined by their ranks alone.
struct RandomModel {
  BpeModel model;
  std::vector<std::string> texts{"x", "y", "z"};

  explicit RandomModel(std::mt19937& random) {
    const int wanted = 40;
    model.merges = MergeTable(wanted);
    for (int rank = 0; rank < wanted; ++rank) {
      const size_t left = random() % texts.size(), right = random() % texts.size();
      const std::string made = texts[left] + texts[right];
      if (made.size() > 12 || std::find(texts.begin(), texts.end(), made) != texts.end()) continue;
      model.merges.add(static_cast<int32_t>(left), static_cast<int32_t>(right),
                       {rank, static_cast<int32_t>(texts.size())});
      texts.push_back(made);
    }
    for (size_t id = 0; id < texts.size(); ++id)
      model.vocab.add(texts[id], static_cast<int32_t>(id));
  }
};

TEST(Bpe, EqualsItsDefinition) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 100; ++trial) {
    RandomModel made(random);
    const MergeTable merges = made.model.merges;
    made.model.byte_level = trial % 2 == 0;
    const Bpe bpe(std::move(made.model));
    for (int word = 0; word < 20; ++word) {
      std::string text(1 + random() % 60, 'x');
      Ids first;
      for (char& c : text) {
        first.push_back(static_cast<int32_t>(random() % 3));
        c = static_cast<char>('x' + first.back());
      }
      Ids ids, again;
      bpe.encode(text, ids);
      EXPECT_EQ(ids, merged_slowly(merges, first)) << text;
      bpe.encode(text, again);  // now out of the cache
      EXPECT_EQ(again, ids);
    }
  }
}

TEST(Bpe, LongWordsTakeNoQuadraticTime) {
  const auto tokenizer = tokenizer_of(tiny_tokenizer_json());
  const std::string text(4 << 20, 'h');
  EXPECT_EQ(encode_plainly(*tokenizer, text).size(), text.size());
  std::string pairs;
  for (int i = 0; i < 1 << 20; ++i) pairs += "he";
  EXPECT_EQ(encode_plainly(*tokenizer, pairs).size(), size_t{1} << 20);
}

TEST(Bpe, UnknownCharacters) {
  BpeModel model;
  model.vocab = {{"?", 0}, {"a", 1}};
  model.unk = 0;
  const auto encode = [](const BpeModel& model) {
    Ids ids;
    Bpe(model).encode("aéöa", ids);
    return ids;
  };
  EXPECT_EQ(encode(model), (Ids{1, 0, 0, 1}));
  model.fuse_unk = true;
  EXPECT_EQ(encode(model), (Ids{1, 0, 1}));
  model.unk = -1;
  EXPECT_EQ(encode(model), (Ids{1, 1}));
}

}  // namespace
}  // namespace skiff::text
