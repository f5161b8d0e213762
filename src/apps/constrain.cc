// `skiff constrain`: judges texts by a constraint, token by token through the masks that a request
// with that constraint would get.
#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <unordered_map>

#include "apps/commands.h"
#include "base/json.h"
#include "base/load_error.h"
#include "grammar/grammar.h"

namespace skiff::apps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRefused = 3;  // exit code

struct KindFlag {
  std::string_view flag;
  grammar::ConstraintKind kind;
};
constexpr KindFlag kKinds[] = {{"json-schema", grammar::ConstraintKind::kJsonSchema},
                               {"regex", grammar::ConstraintKind::kRegex},
                               {"grammar", grammar::ConstraintKind::kGrammar},
                               {"choice", grammar::ConstraintKind::kChoice},
                               {"structural-tag", grammar::ConstraintKind::kStructuralTag},
                               {"json-object", grammar::ConstraintKind::kJsonObject}};

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_load("{}: cannot be read", path);
  return {std::istreambuf_iterator<char>(in), {}};
}

grammar::Constraint read_constraint(const Args& args) {
  grammar::Constraint out;
  int given = 0;
  for (const KindFlag& row : kKinds) {
    if (!args.given(row.flag)) continue;
    ++given;
    out.kind = row.kind;
    if (row.kind != grammar::ConstraintKind::kJsonObject) out.text = read_text(args.text(row.flag));
  }
  if (given != 1)
    throw UsageError(
        "skiff constrain needs one of --json-schema, --regex, --grammar, --choice, "
        "--structural-tag (each with a file) and --json-object");
  // An editor's line end is no part of a regular expression.
  if (out.kind == grammar::ConstraintKind::kRegex)
    while (out.text.ends_with('\n') || out.text.ends_with('\r')) out.text.pop_back();
  out.no_whitespace = args.on("guided-decoding-disable-any-whitespace");
  return out;
}

// Texts as tokens whose bytes are exactly the text's: as the tokenizer cuts them, or, where it adds
// bytes of its own (a space at the start), by the longest token that fits.
class Cutter {
 public:
  explicit Cutter(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {
    for (int32_t token = 0; token < tokenizer.vocab_size(); ++token) {
      if (tokenizer.is_special(token)) continue;
      const std::string_view piece = tokenizer.piece(token);
      longest_ = std::max(longest_, piece.size());
      if (!piece.empty()) tokens_.emplace(piece, token);
    }
  }
  std::vector<int32_t> cut(std::string_view text) const {
    auto tokens = tokenizer_.encode(text, {.add_special = false, .parse_special = false});
    std::string joined;
    for (const int32_t token : tokens) joined += tokenizer_.piece(token);
    if (joined == text) return tokens;
    tokens.clear();
    while (!text.empty()) {
      size_t size = std::min(longest_, text.size());
      while (size > 0 && !tokens_.contains(text.substr(0, size))) --size;
      if (size == 0)
        fail_load("no token begins {}",
                  Json(text.substr(0, 8)).dump(-1, ' ', true, Json::error_handler_t::replace));
      tokens.push_back(tokens_.at(text.substr(0, size)));
      text.remove_prefix(size);
    }
    return tokens;
  }

 private:
  const text::Tokenizer& tokenizer_;
  std::unordered_map<std::string_view, int32_t> tokens_;
  size_t longest_ = 0;
};

struct Verdict {
  bool accepts = false;
  size_t at = 0;       // bytes that were accepted
  double mask_us = 0;  // mean time that a mask took
};

Verdict judge(const std::shared_ptr<const grammar::Grammar>& compiled,
              const text::Tokenizer& tokenizer, const std::vector<int32_t>& tokens) {
  grammar::Matcher matcher(compiled);
  std::vector<uint32_t> mask(compiled->vocabulary().mask_words());
  Verdict out;
  Clock::duration spent{0};
  size_t masks = 0;
  const auto allowed = [&](int32_t token) {
    const auto start = Clock::now();
    matcher.fill(mask);
    spent += Clock::now() - start;
    ++masks;
    return (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
  };
  out.accepts = true;
  for (const int32_t token : tokens) {
    if (!allowed(token) || !matcher.accept(token)) {
      out.accepts = false;
      break;
    }
    out.at += tokenizer.piece(token).size();
  }
  out.accepts = out.accepts && matcher.is_complete();
  if (masks > 0)
    out.mask_us =
        std::chrono::duration<double, std::micro>(spent).count() / static_cast<double>(masks);
  return out;
}

}  // namespace

int run_constrain(const Args& args) {
  const grammar::Constraint constraint = read_constraint(args);
  const auto tokenizer = need_tokenizer(args, model_folder(args));
  std::vector<int32_t> ends;
  if (const auto eos = tokenizer->find(tokenizer->eos())) ends.push_back(*eos);
  const auto vocabulary = grammar::Vocabulary::of(*tokenizer, tokenizer->vocab_size(), ends);
  const auto start = Clock::now();
  const auto compiled = grammar::compile(constraint, vocabulary);
  const double compile_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  if (!compiled) {
    const Json refusal = {{"error", compiled.error().what}, {"pointer", compiled.error().field}};
    fmt::print("{}\n", refusal.dump(-1, ' ', false, Json::error_handler_t::replace));
    return kRefused;
  }
  const Cutter cutter(*tokenizer);
  size_t number = 0;
  for (std::string line; std::getline(std::cin, line);) {
    ++number;
    const auto value = parse_json(line);
    if (!value || !value->is_string()) fail_load("line {}: expected a JSON string", number);
    const Verdict verdict =
        judge(*compiled, *tokenizer, cutter.cut(value->get_ref<const std::string&>()));
    fmt::print("{{\"accepts\":{},\"at\":{},\"compile_ms\":{:.3f},\"mask_us\":{:.2f}}}\n",
               verdict.accepts, verdict.at, compile_ms, verdict.mask_us);
  }
  return 0;
}

}  // namespace skiff::apps
