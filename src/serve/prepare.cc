#include "serve/prepare.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

namespace skiff {
namespace {

// Bounds on what costs time per token or memory per request.
constexpr size_t kMaxStopStrings = 64, kMaxStopBytes = 1024, kMaxStopTokens = 1024;
constexpr size_t kAlwaysTokenized = 1 << 20, kTokenizedPerPosition = 64;  // bytes
constexpr size_t kMaxBadWords = 1024, kMaxBadWordTokens = 64;
constexpr float kGreedyBelow = 1e-6f;  // logits divided by less would overflow

Error invalid(std::string field, std::string what) {
  return Error{Code::kInvalid, std::move(what), std::move(field)};
}

int vocab_of(const PrepareContext& context) {
  return context.config.vocab_size > 0 ? context.config.vocab_size : context.tokenizer.vocab_size();
}

std::optional<Error> check_range(const char* field, double value, double low, double high) {
  // The numbers of a request are floats by now, and so are the bounds: 1e-6 is not below 1e-6.
  const auto number = static_cast<float>(value);
  if (number >= static_cast<float>(low) && number <= static_cast<float>(high)) return std::nullopt;
  return invalid(field, fmt::format("{} must be in [{}, {}], but is {}", field, low, high, value));
}

std::optional<Error> check_tokens(const char* field, const std::vector<Token>& tokens, int vocab) {
  const bool prompt = field == std::string_view("input");
  for (Token token : tokens)
    if (token < 0 || token >= vocab)
      return invalid(field, fmt::format("{} has token id {}, but the vocabulary is [0, {})",
                                        prompt ? "the prompt" : field, token, vocab));
  return std::nullopt;
}

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

std::optional<Error> check_numbers(const Request& request) {
  const SamplingParams& p = request.params;
  constexpr double kHuge = 1e6, kMostTokens = 2147483647;
  for (auto& error :
       {check_range("temperature", p.temperature, 0, kHuge), check_range("top_p", p.top_p, 0, 1),
        check_range("min_p", p.min_p, 0, 1), check_range("presence_penalty", p.presence, -2, 2),
        check_range("frequency_penalty", p.frequency, -2, 2),
        check_range("repetition_penalty", p.repetition, 1e-6, kHuge),
        check_range("top_k", p.top_k, -1, kMostTokens),
        check_range("n", request.n, 1, Service::kMaxN),
        check_range("max_tokens", request.stop.max_tokens, 0, kMostTokens),
        check_range("min_tokens", p.min_tokens, 0, kMostTokens)})
    if (error) return error;
  return std::nullopt;
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
  if (auto error = check_tokens("completion_token_ids", request.begun, vocab)) return error;
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

// A bad word is banned at the start of a word and inside one.
std::optional<Error> add_bad_words(Request& request, const PrepareContext& context) {
  auto& all = request.params.bad_words;
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
  return std::nullopt;
}

Result<std::string> render(const Conversation& conversation, const std::string& own_template,
                           const PrepareContext& context) {
  if (own_template.empty()) {
    if (!context.chat_template)
      return invalid("input",
                     "this model has no chat template; use /v1/completions, or start the "
                     "server with --chat-template");
    return context.chat_template->render(conversation);
  }
  if (context.chat_template) {
    auto text = context.chat_template->render_with(own_template, conversation);
    if (text) return text;
    return invalid("chat_template", text.error().what);
  }
  auto made = make_chat_template(own_template, Json{{"bos_token", context.tokenizer.bos()},
                                                    {"eos_token", context.tokenizer.eos()}});
  if (!made) return invalid("chat_template", made.error().what);
  auto text = (*made)->render(conversation);
  if (text) return text;
  return invalid("chat_template", text.error().what);
}

Error too_long(const PrepareContext& context, const std::string& have) {
  return invalid("input_length",
                 fmt::format("This model's maximum context length is {} tokens. However, your "
                             "prompt has {} tokens, and at least one more is needed for the reply. "
                             "Please shorten the prompt.",
                             context.config.max_model_len, have));
}

Result<std::string> prompt_text(const Request& request, const PrepareContext& context) {
  if (const auto* text = std::get_if<std::string>(&request.input)) return *text;
  const Conversation& given = std::get<Conversation>(request.input);
  std::optional<Conversation> marked;
  if (context.special && !request.message_special) marked = context.special->marked(given);
  auto result = render(marked ? *marked : given, request.chat_template, context);
  if (result) return result;
  Error error = result.error();
  if (error.field.empty()) error.field = "input";
  return error;
}

bool has_tokens(const Request& request) {
  return std::holds_alternative<std::vector<Token>>(request.input);
}

std::vector<Token> encode(const Request& request, const std::string& text,
                          const PrepareContext& context) {
  const bool raw = std::holds_alternative<std::string>(request.input);
  const EncodeOptions options{.add_special = raw ? request.add_special : request.template_special,
                              .parse_special = true};
  if (raw || !context.special) return context.tokenizer.encode(text, options);
  return context.special->encode(context.tokenizer, text, options);
}

// Far more text than the context can hold is refused before time is spent on it. Normalization
// may shrink text (NFC by a factor of 3 at most), hence the 4.
Result<std::vector<Token>> bounded_tokens(const Request& request, const PrepareContext& context) {
  if (has_tokens(request) || request.truncate_prompt != 0) return prompt_tokens(request, context);
  auto text = prompt_text(request, context);
  if (!text) return text.error();
  const size_t at_least = text->size() / (4 * context.longest_piece);
  if (at_least > static_cast<size_t>(context.config.max_model_len))
    return too_long(context, fmt::format("more than {}", at_least));
  return encode(request, *text, context);
}

// Tokens at the end are kept.
void truncate(std::vector<Token>& prompt, const Request& request, const PrepareContext& context) {
  int keep = request.truncate_prompt;
  if (keep == 0) return;
  if (keep < 0)
    keep = std::max(context.config.max_model_len - std::max(request.stop.max_tokens, 1), 1);
  if (prompt.size() <= static_cast<size_t>(keep)) return;
  prompt.erase(prompt.begin(), prompt.end() - keep);
}

std::optional<Error> check_lengths(const Request& request, size_t prompt,
                                   const PrepareContext& context) {
  const int least = request.params.min_tokens, most = request.stop.max_tokens;
  const int limit = context.config.max_model_len;
  if (most > 0 && least > most)
    return invalid("min_tokens",
                   fmt::format("min_tokens ({}) is greater than max_tokens ({})", least, most));
  if (prompt + 1 > static_cast<size_t>(limit)) return too_long(context, fmt::format("{}", prompt));
  if (prompt + static_cast<size_t>(least) > static_cast<size_t>(limit))
    return invalid("input_length",
                   fmt::format("Input text is too long, input_ids_len ({}) + min_tokens({}) >= "
                               "max_model_len({})",
                               prompt, least, limit));
  return std::nullopt;
}

// EOS ends a reply unless ignore_eos; an id that the client named itself is a stop_reason.
void resolve_eos(const Request& request, const PrepareContext& context, Prepared& prepared) {
  if (request.ignore_eos) return;
  auto& stops = prepared.stop.tokens;
  for (Token eos : context.config.eos) {
    if (std::find(stops.begin(), stops.end(), eos) != stops.end()) continue;
    stops.push_back(eos);
    prepared.eos.push_back(eos);
  }
}

}  // namespace

size_t longest_piece(const Tokenizer& tokenizer) {
  size_t longest = 1;
  for (int token = 0; token < tokenizer.vocab_size(); ++token)
    longest = std::max(longest, tokenizer.piece(token).size());
  return longest;
}

// Tokenizing costs time in proportion to the text, on a thread that others wait for. What a context
// can hold many times over is tokenized all the same, to be counted or cut; a megabyte always is.
Result<std::vector<Token>> prompt_tokens(const Request& request, const PrepareContext& context) {
  if (has_tokens(request)) return std::get<std::vector<Token>>(request.input);
  auto text = prompt_text(request, context);
  if (!text) return text.error();
  const size_t most = std::max(
      kAlwaysTokenized, kTokenizedPerPosition * static_cast<size_t>(context.config.max_model_len));
  if (text->size() > most)
    return invalid("input_length",
                   fmt::format("the prompt has {} bytes of text, at most {} are tokenized",
                               text->size(), most));
  return encode(request, *text, context);
}

Result<Prepared> prepare_request(Request request, const PrepareContext& context) {
  if (auto error = check_numbers(request)) return *error;
  if (auto error = check_lists(request, context)) return *error;
  if (auto error = check_logprobs("logprobs", request.params.logprobs, context)) return *error;
  if (auto error = check_logprobs("prompt_logprobs", request.params.prompt_logprobs, context))
    return *error;
  if (auto error = add_bad_words(request, context)) return *error;

  auto prompt = bounded_tokens(request, context);
  if (!prompt) return prompt.error();
  prompt->insert(prompt->end(), request.begun.begin(), request.begun.end());
  truncate(*prompt, request, context);
  if (prompt->empty()) return invalid("input", "the prompt is empty: it has no tokens");
  if (auto error = check_tokens("input", *prompt, vocab_of(context))) return *error;
  if (auto error = check_lengths(request, prompt->size(), context)) return *error;

  Prepared prepared;
  const int room = context.config.max_model_len - static_cast<int>(prompt->size());
  const int asked = request.stop.max_tokens;
  prepared.prompt = std::move(*prompt);
  prepared.params = std::move(request.params);
  prepared.stop = std::move(request.stop);
  prepared.stop.max_tokens = asked == 0 ? room : std::min(asked, room);
  prepared.params.top_k = std::min(prepared.params.top_k, vocab_of(context));
  if (prepared.params.temperature < kGreedyBelow) prepared.params.temperature = 0;
  resolve_eos(request, context, prepared);
  prepared.stop_strings = std::move(request.stop_strings);
  prepared.include_stop = request.include_stop;
  prepared.skip_special = request.skip_special;
  prepared.n = request.n;
  prepared.priority = request.priority;
  prepared.cache = std::move(request.cache);
  prepared.timeout_seconds = request.timeout_seconds;
  return prepared;
}

}  // namespace skiff
