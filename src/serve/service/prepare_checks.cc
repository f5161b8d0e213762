#include "serve/service/prepare_checks.h"

#include <algorithm>
#include <string_view>

namespace skiff::service {
namespace {

// Bounds on lists that cost time per token or memory per request.
constexpr size_t kMaxStopStrings = 64, kMaxStopBytes = 1024, kMaxStopTokens = 1024;
constexpr size_t kMaxBadWords = 1024, kMaxBadWordTokens = 64;
// About as many as fit the unsent bytes that a stream may have (HttpConfig::max_unsent).
constexpr int64_t kMaxStreamedLogprobs = 32768;

Error invalid(std::string field, std::string what) {
  return Error{Code::kInvalid, std::move(what), std::move(field)};
}

std::optional<Error> check_range(const char* field, double value, double low, double high) {
  if (value >= low && value <= high) return std::nullopt;  // false for NaN
  return invalid(field, fmt::format("{} must be in [{}, {}], but is {}", field, low, high, value));
}

}  // namespace

int vocab_of(const PrepareContext& context) {
  return context.config.vocab_size > 0 ? context.config.vocab_size : context.tokenizer.vocab_size();
}

std::optional<Error> check_tokens(const char* field, const std::vector<Token>& tokens, int vocab) {
  const bool prompt = field == std::string_view("input");
  for (Token token : tokens)
    if (token < 0 || token >= vocab)
      return invalid(field, fmt::format("{} has token id {}, but the vocabulary is [0, {})",
                                        prompt ? "the prompt" : field, token, vocab));
  return std::nullopt;
}

namespace {

std::optional<Error> check_logprobs(const char* field, int wanted, const PrepareContext& context) {
  const int most = context.config.max_logprobs;
  if (most == 0 && wanted != kNoLogprobs)
    return invalid(field, "Logprobs is disabled, please enable it in startup config.");
  if (wanted < kNoLogprobs)
    return invalid(field, fmt::format("{} must not be negative, but is {}", field, wanted));
  if (most >= 0 && wanted > most)
    return invalid(field, fmt::format("{} is {}, but this server gives at most {} (--max-logprobs)",
                                      field, wanted == kAllLogprobs ? -1 : wanted, most));
  return std::nullopt;
}

std::optional<Error> check_draft_logprobs(const SamplingParams& params,
                                          const PrepareContext& context) {
  const char* field = "include_draft_logprobs";
  if (!params.draft_logprobs) return std::nullopt;
  if (!context.config.draft_logprobs)
    return invalid(
        field,
        "this server has no log-probabilities of drafts: it needs a --speculative-config "
        "whose method drafts with a model, with \"enable_draft_logprob\": true; leave "
        "include_draft_logprobs out");
  if (params.logprobs != kNoLogprobs) return std::nullopt;
  return invalid(field, "when using `include_draft_logprobs`, `logprobs` must be set.");
}

std::optional<Error> check_numbers(const Request& request) {
  const SamplingParams& p = request.params;
  constexpr double kHuge = 1e6, kMaxTokens = 2147483647;
  for (auto& error :
       {check_range("temperature", p.temperature, 0, kHuge), check_range("top_p", p.top_p, 0, 1),
        check_range("min_p", p.min_p, 0, 1), check_range("presence_penalty", p.presence, -2, 2),
        check_range("frequency_penalty", p.frequency, -2, 2),
        check_range("repetition_penalty", p.repetition, 1e-6f, kHuge),
        check_range("top_k", p.top_k, -1, kMaxTokens),
        check_range("n", request.n, 1, Service::kMaxN),
        check_range("max_tokens", request.stop.max_tokens, 0, kMaxTokens),
        check_range("min_tokens", p.min_tokens, 0, kMaxTokens)})
    if (error) return error;
  return std::nullopt;
}

// What a reply begins with is put behind each prompt of a request, of which there may be thousands.
std::optional<Error> check_begun(const Request& request, const PrepareContext& context) {
  const char* field = "completion_token_ids";
  const auto most = static_cast<size_t>(context.config.max_model_len);
  if (request.begun.size() > most)
    return invalid(field, fmt::format("{} has {} ids, more than the context of {} tokens", field,
                                      request.begun.size(), most));
  return check_tokens(field, request.begun, vocab_of(context));
}

std::optional<Error> check_lists(const Request& request, const PrepareContext& context) {
  const SamplingParams& p = request.params;
  const int vocab = vocab_of(context);
  if (request.stop_strings.size() > kMaxStopStrings)
    return invalid("stop",
                   fmt::format("Length of stop ({}) exceeds the limit max_stop_seqs_num({}).",
                               request.stop_strings.size(), kMaxStopStrings));
  for (const std::string& stop : request.stop_strings)
    if (stop.size() > kMaxStopBytes)
      return invalid("stop", fmt::format("stop has a string of {} bytes, at most {} are allowed",
                                         stop.size(), kMaxStopBytes));
  if (request.stop.tokens.size() > kMaxStopTokens)
    return invalid("stop_token_ids",
                   fmt::format("stop_token_ids has {} ids, at most {} are allowed",
                               request.stop.tokens.size(), kMaxStopTokens));
  if (auto error = check_tokens("stop_token_ids", request.stop.tokens, vocab)) return error;
  if (p.bad_words.size() + request.bad_words.size() > kMaxBadWords)
    return invalid("bad_words", fmt::format("at most {} bad words are allowed", kMaxBadWords));
  for (const auto& word : p.bad_words) {
    if (word.empty() || word.size() > kMaxBadWordTokens)
      return invalid("bad_words_token_ids",
                     fmt::format("a bad word has {} tokens, 1 to {} are allowed", word.size(),
                                 kMaxBadWordTokens));
    if (auto error = check_tokens("bad_words_token_ids", word, vocab)) return error;
  }
  if (p.logit_bias.size() > static_cast<size_t>(vocab))
    return invalid(
        "logit_bias",
        fmt::format("logit_bias has {} entries, more than the vocabulary has tokens ({})",
                    p.logit_bias.size(), vocab));
  for (const auto& [token, bias] : p.logit_bias) {
    if (auto error = check_tokens("logit_bias", {token}, vocab)) return error;
    if (auto error = check_range("logit_bias", bias, -100, 100)) return error;
  }
  return std::nullopt;
}

struct LogprobCount {
  int64_t replies = 0, prompts = 0;
  int64_t beside = 0;  // a chat's reply has those of its prompt beside its choices, too
};

LogprobCount count_logprobs(const std::vector<Prepared>& calls, int vocab) {
  LogprobCount count;
  for (const Prepared& one : calls) {
    const auto each = [&](int wanted) {
      return wanted == kNoLogprobs ? int64_t{0} : std::min(wanted, vocab) + 1;
    };
    const int64_t prompt = each(one.params.prompt_logprobs) * std::ssize(one.prompt);
    const int64_t reply = each(one.params.logprobs) * one.stop.max_tokens;
    count.replies += one.n * (one.params.draft_logprobs ? 2 : 1) * reply;
    count.prompts += one.n * prompt;
    count.beside += prompt;
  }
  return count;
}

// The factors of the product, under the client's names for them. `beside`: there is one more copy
// of a prompt's than there are choices.
std::string factors(const std::vector<Prepared>& calls, bool of_prompts, int vocab, bool beside) {
  int64_t tokens = 0;
  for (const Prepared& one : calls)
    tokens = std::max<int64_t>(tokens, of_prompts ? std::ssize(one.prompt) : one.stop.max_tokens);
  const SamplingParams& params = calls.front().params;
  const int wanted = std::min(of_prompts ? params.prompt_logprobs : params.logprobs, vocab);
  const std::string choices = fmt::format("n ({})", calls.front().n);
  const std::string head = fmt::format("{} prompts x {} x ", calls.size(),
                                       beside ? fmt::format("({} + 1)", choices) : choices);
  return of_prompts ? fmt::format("{}{} tokens x (prompt_logprobs ({}) + 1)", head, tokens, wanted)
                    : fmt::format("{}max_tokens ({}) x (logprobs or top_logprobs ({}) + 1){}", head,
                                  tokens, wanted,
                                  params.draft_logprobs ? " x 2 (include_draft_logprobs)" : "");
}

}  // namespace

std::optional<Error> check_common(const Request& request, const PrepareContext& context) {
  if (auto error = check_numbers(request)) return error;
  if (auto error = check_lists(request, context)) return error;
  if (auto error = check_begun(request, context)) return error;
  if (auto error = check_logprobs("logprobs", request.params.logprobs, context)) return error;
  if (auto error = check_draft_logprobs(request.params, context)) return error;
  return check_logprobs("prompt_logprobs", request.params.prompt_logprobs, context);
}

// A bad word is banned at the start of a word and inside one.
std::optional<Error> add_bad_words(Request& request, const PrepareContext& context) {
  if (request.bad_words.empty()) return std::nullopt;
  std::vector<std::vector<Token>> all = request.params.bad_words;
  for (const std::string& word : request.bad_words) {
    if (word.empty()) return invalid("bad_words", "bad_words has an empty string");
    for (const std::string& form : {word, " " + word}) {
      auto tokens = context.tokenizer.encode(form, {.add_special = false, .parse_special = false});
      if (tokens.size() > kMaxBadWordTokens)
        return invalid("bad_words", fmt::format("a bad word has {} tokens, at most {} are allowed",
                                                tokens.size(), kMaxBadWordTokens));
      if (!tokens.empty() && std::find(all.begin(), all.end(), tokens) == all.end())
        all.push_back(std::move(tokens));
    }
  }
  request.params.bad_words = std::move(all);
  return std::nullopt;
}

std::optional<Error> check_reply(const std::vector<Prepared>& calls, bool streamed,
                                 const PrepareContext& context) {
  const int vocab = vocab_of(context);
  LogprobCount count = count_logprobs(calls, vocab);
  if (streamed) {
    if (count.prompts > kMaxStreamedLogprobs)
      return invalid(
          "prompt_logprobs",
          fmt::format("a stream would send {} log-probabilities of its prompts in one "
                      "event: {}; at most {} are possible. Ask for fewer, or without "
                      "stream.",
                      count.prompts, factors(calls, true, vocab, false), kMaxStreamedLogprobs));
    count.replies = 0;
  }
  count.prompts += count.beside;
  const int64_t most = context.config.max_reply_logprobs, all = count.replies + count.prompts;
  if (most == 0 || all <= most) return std::nullopt;
  const bool of_prompts = count.prompts > count.replies;
  return invalid(of_prompts ? "prompt_logprobs" : "logprobs",
                 fmt::format("the reply could hold {} log-probabilities: {}; this server gives at "
                             "most {} at a time (--max-reply-logprobs). Ask for fewer{}.",
                             all, factors(calls, of_prompts, vocab, of_prompts), most,
                             of_prompts ? "" : ", or for a stream"));
}

std::optional<Error> add_reference(const Request& request, const PrepareContext& context,
                                   Prepared& prepared) {
  if (request.reference.empty() || context.config.drafts == 0) return std::nullopt;
  const auto most = static_cast<size_t>(context.config.max_model_len);
  const auto too_long = [&](const std::string& have) {
    return invalid("prediction",
                   fmt::format("the prediction has {} tokens, more than the context of {} tokens; "
                               "send the part that the reply repeats",
                               have, most));
  };
  // Text that is far too long is not tokenized, neither here nor in prompts.
  const size_t at_least = request.reference.size() / (4 * context.longest_piece);
  if (at_least > most) return too_long(fmt::format("more than {}", at_least));
  std::vector<Token> tokens =
      context.tokenizer.encode(request.reference, {.add_special = false, .parse_special = false});
  if (tokens.size() > most) return too_long(fmt::format("{}", tokens.size()));
  prepared.reference = std::move(tokens);
  return std::nullopt;
}

}  // namespace skiff::service
