// Damaged tokenizer files are refused with one line, or they work. The fuzz target explores more of
// them.
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "text/tokenizer_testing.h"

namespace skiff::text {
namespace {

// Replaces one random value inside `json` by another kind of value.
void mutate(Json& json, std::mt19937& random) {
  Json* at = &json;
  while (at->is_structured() && !at->empty() && random() % 6 != 0) {
    auto it = at->begin();
    std::advance(it, static_cast<ptrdiff_t>(random() % at->size()));
    at = &*it;
  }
  const Json values[] = {nullptr,
                         true,
                         -1,
                         261,
                         4.5e300,
                         "",
                         "Ġ",
                         "\u2581",
                         "BPE",
                         "ByteLevel",
                         "(a*)*$b",
                         Json::array(),
                         Json::object(),
                         json["model"]["merges"],
                         Json{{"type", "Sequence"}},
                         Json{{"type", "Split"}}};
  *at = values[random() % std::size(values)];
}

void use(const std::string& bytes, int* accepted) {
  const auto made = parse_tokenizer_json(bytes, {}, "t");
  if (!made) {
    EXPECT_EQ(made.error().what.find('\n'), std::string::npos) << made.error().what;
    return;
  }
  ++*accepted;
  const auto ids = (*made)->encode(" the thing <end> caf\xC3\xA9 \xFF", {});
  for (const int32_t id : ids) {
    EXPECT_GE(id, 0);
    EXPECT_LT(id, (*made)->vocab_size());
  }
  EXPECT_TRUE(is_valid_utf8((*made)->decode(ids, false)));
}

TEST(TokenizerMutation, StructureAndBytes) {
  const Json seeds[] = {tiny_tokenizer_json(), tiny_metaspace_json()};
  std::mt19937 random(23);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  int accepted = 0, trial = 0;
  for (; trial < 4000 && std::chrono::steady_clock::now() < end; ++trial) {
    Json file = seeds[trial % 2];
    for (int i = 0; i <= trial % 4; ++i)
      if (file.is_object() && file.contains("model") && file["model"].is_object())
        mutate(file, random);
    std::string bytes = file.dump();
    if (trial % 3 == 0 && !bytes.empty())
      for (int i = 0; i < 3; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    use(bytes, &accepted);
  }
  EXPECT_GT(accepted, trial / 50);
}

}  // namespace
}  // namespace skiff::text
