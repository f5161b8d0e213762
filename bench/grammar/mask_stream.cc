// Writes masks to compare with another implementation's: mask_stream TOKENIZER WIDTH END < CASES.
//
// Each line of CASES is {"kind": "json_schema" | "regex" | "grammar", "text": TEXT, "tokens":
// [[ID...]...]}; JSON is written without white space, and END is the token that ends a text. Each
// is answered by a line: {"error": WHAT} where it is refused, else {"masks": [COUNT...]}, followed
// by that many masks for each list of tokens, of WIDTH bits in whole words of 32: one before each
// token that is allowed, and one behind the last.
#include <fmt/format.h>

#include <cstdio>
#include <iostream>

#include "base/json.h"
#include "grammar/grammar.h"
#include "text/tokenizer.h"

namespace skiff::grammar {
namespace {

Constraint constraint_of(const Json& one) {
  const std::string kind = one["kind"];
  return {.kind = kind == "regex"     ? ConstraintKind::kRegex
                  : kind == "grammar" ? ConstraintKind::kGrammar
                                      : ConstraintKind::kJsonSchema,
          .text = one["text"],
          .no_whitespace = true};
}

void answer(const Json& one, const std::shared_ptr<const Vocabulary>& vocabulary) {
  const auto grammar = compile(constraint_of(one), vocabulary);
  if (!grammar) {
    fmt::print("{}\n", Json{{"error", grammar.error().what}}.dump());
    return;
  }
  std::vector<uint32_t> masks;
  Json counts = Json::array();
  for (const std::vector<int32_t> tokens : one["tokens"]) {
    Matcher matcher(*grammar);
    size_t count = 0;
    do {
      const size_t at = masks.size();
      masks.resize(at + vocabulary->mask_words());
      matcher.fill(std::span(masks).subspan(at));
    } while (++count <= tokens.size() && matcher.accept(tokens[count - 1]));
    counts.push_back(count);
  }
  fmt::print("{}\n", Json{{"masks", std::move(counts)}}.dump());
  std::fwrite(masks.data(), sizeof(uint32_t), masks.size(), stdout);
}

int run(const char* folder, int width, int32_t end) {
  const auto tokenizer = text::load_tokenizer(folder);
  SKIFF_CHECK(static_cast<bool>(tokenizer), "{}", tokenizer.error().what);
  const int32_t ends[] = {end};
  const auto vocabulary = Vocabulary::of(**tokenizer, width, ends);
  for (std::string line; std::getline(std::cin, line); std::fflush(stdout)) {
    const auto json = parse_json(line);
    SKIFF_CHECK(static_cast<bool>(json), "{}", line.substr(0, 80));
    answer(*json, vocabulary);
  }
  return 0;
}

}  // namespace
}  // namespace skiff::grammar

int main(int argc, char** argv) {
  if (argc == 4) return skiff::grammar::run(argv[1], std::stoi(argv[2]), std::stoi(argv[3]));
  fmt::print(stderr, "usage: mask_stream TOKENIZER WIDTH END < CASES\n");
  return 2;
}
