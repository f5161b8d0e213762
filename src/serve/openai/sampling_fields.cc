#include <charconv>
#include <limits>

#include "serve/openai/fields.h"

namespace skiff::openai {
namespace {

MaybeProblem read_bad_tokens(const OrderedJson& value, CallDraft& draft) {
  constexpr const char* kKind = "must be a list of token ids, or of lists of them";
  if (!value.is_array()) return Problem{kKind};
  std::vector<std::vector<Token>> words = draft.call.request.params.bad_words;
  for (const OrderedJson& item : value) {
    std::vector<Token> word;
    if (read_token_ids(item.is_array() ? item : OrderedJson::array({item}), word))
      return Problem{fmt::format("{}, but holds {}", kKind, described(item))};
    words.push_back(std::move(word));
  }
  draft.call.request.params.bad_words = std::move(words);
  return std::nullopt;
}

// Accepts digits only: no sign, space, NUL or fraction, and one spelling for each token.
std::optional<Token> token_of_key(const std::string& key) {
  if (key.empty() || key[0] == '-' || (key[0] == '0' && key.size() > 1)) return std::nullopt;
  Token id = 0;
  const char* end = key.data() + key.size();
  const auto [stop, error] = std::from_chars(key.data(), end, id);
  if (error != std::errc() || stop != end || id < 0) return std::nullopt;
  return id;
}

MaybeProblem read_logit_bias(const OrderedJson& value, CallDraft& draft) {
  if (!value.is_object())
    return Problem{"must be an object from token id to bias, but is " + described(value)};
  std::vector<std::pair<Token, float>> biases = draft.call.request.params.logit_bias;
  biases.reserve(biases.size() + value.size());
  for (const auto& [key, bias] : value.items()) {
    const auto id = token_of_key(key);
    if (!id) return Problem{"must have token ids as keys, but has " + described(OrderedJson(key))};
    double x = 0;
    if (auto problem = read_number(bias, -100, 100, x))
      return Problem{fmt::format("of token {} {}", *id, problem->what)};
    biases.emplace_back(*id, static_cast<float>(x));
  }
  draft.call.request.params.logit_bias = std::move(biases);
  return std::nullopt;
}

MaybeProblem read_processor_args(const OrderedJson& value, CallDraft& draft) {
  if (!value.is_object()) return Problem{"must be an object, but is " + described(value)};
  for (const auto& [key, args] : value.items()) {
    if (args.is_null()) continue;
    if (key != "logit_bias")
      return Problem{fmt::format("has {}, which is not supported yet; only \"logit_bias\" is",
                                 described(OrderedJson(key))),
                     Code::kUnsupported};
    if (auto problem = read_logit_bias(args, draft))
      return Problem{"logit_bias " + problem->what, problem->code};
  }
  return std::nullopt;
}

}  // namespace

#define SET(target)                                                \
  [](CallDraft& draft, auto value) {                               \
    (target) = static_cast<std::decay_t<decltype(target)>>(value); \
  }

std::vector<Field> sampling_fields() {
  using enum Scope;
  constexpr int64_t kSeedMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kSeedMax = std::numeric_limits<int64_t>::max();
  return {
      {"temperature", kBoth, number_field(0, 1e6, SET(draft.call.request.params.temperature))},
      {"top_p", kBoth, number_field(0, 1, SET(draft.call.request.params.top_p))},
      {"top_k", kBoth, integer_field(-1, kMaxTokens, SET(draft.call.request.params.top_k))},
      {"min_p", kBoth, number_field(0, 1, SET(draft.call.request.params.min_p))},
      {"repetition_penalty", kBoth,
       number_field(1e-6, 1e6, SET(draft.call.request.params.repetition))},
      {"presence_penalty", kBoth, number_field(-2, 2, SET(draft.call.request.params.presence))},
      {"frequency_penalty", kBoth, number_field(-2, 2, SET(draft.call.request.params.frequency))},
      {"seed", kBoth,
       integer_field(kSeedMin, kSeedMax,
                     [](CallDraft& draft, int64_t seed) {
                       draft.call.request.params.seed = static_cast<uint64_t>(seed);
                       draft.call.request.seed_given = true;
                     })},
      {"n", kBoth, integer_field(1, service::Service::kMaxN, SET(draft.call.request.n))},
      {"best_of", kBoth, integer_field(1, service::Service::kMaxN, SET(draft.call.best_of))},
      {"min_tokens", kBoth,
       integer_field(0, kMaxTokens, SET(draft.call.request.params.min_tokens))},
      {"ignore_eos", kBoth, boolean_field(SET(draft.call.request.ignore_eos))},
      {"bad_words", kBoth,
       [](const OrderedJson& value, CallDraft& draft) {
         return read_strings(value, draft.call.request.bad_words);
       }},
      {"bad_words_token_ids", kBoth, read_bad_tokens},
      {"logit_bias", kBoth, read_logit_bias},
      {"logits_processors_args", kBoth, read_processor_args},
      {"priority", kBoth, integer_field(-kMaxTokens, kMaxTokens, SET(draft.call.request.priority))},
  };
}
#undef SET

}  // namespace skiff::openai
