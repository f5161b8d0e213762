#include "serve/service/prepare.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "serve/service/constraint_plan.h"
#include "serve/service/prepare_checks.h"

namespace skiff::service {
namespace {

constexpr float kGreedyBelow = 1e-6f;  // dividing logits by less could overflow

Error invalid(std::string field, std::string what) {
  return Error{Code::kInvalid, std::move(what), std::move(field)};
}

Result<std::string> render(const text::Conversation& conversation, const std::string& own_template,
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
  auto made = text::make_chat_template(own_template, Json{{"bos_token", context.tokenizer.bos()},
                                                          {"eos_token", context.tokenizer.eos()}});
  if (!made) return invalid("chat_template", made.error().what);
  auto text = (*made)->render(conversation);
  if (text) return text;
  return invalid("chat_template", text.error().what);
}

Error too_long(const PrepareContext& context, const std::string& have) {
  if (context.config.pooled)
    return invalid("input_length",
                   fmt::format("This model's maximum context length is {} tokens. However, the "
                               "input has {} tokens. Please shorten it, or let the server cut it "
                               "with truncate_prompt_tokens: -1.",
                               context.config.max_model_len, have));
  return invalid("input_length",
                 fmt::format("This model's maximum context length is {} tokens. However, your "
                             "prompt has {} tokens, and at least one more is needed for the reply. "
                             "Please shorten the prompt.",
                             context.config.max_model_len, have));
}

Result<std::string> prompt_text(const Request& request, const PrepareContext& context) {
  if (const auto* text = std::get_if<std::string>(&request.input)) return *text;
  const text::Conversation& given = std::get<text::Conversation>(request.input);
  std::optional<text::Conversation> marked;
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
  const text::EncodeOptions options{
      .add_special = raw ? request.add_special : request.template_special, .parse_special = true};
  if (raw || !context.special) return context.tokenizer.encode(text, options);
  return context.special->encode(context.tokenizer, text, options);
}

// Refuses text that is far too long for the context before it is tokenized. Normalization may
// shrink text (NFC by a factor of 3 at most), hence the factor 4.
Result<std::vector<Token>> bounded_tokens(const Request& request, const PrepareContext& context) {
  if (has_tokens(request) || request.truncate_prompt != 0) return prompt_tokens(request, context);
  auto text = prompt_text(request, context);
  if (!text) return text.error();
  const size_t at_least = text->size() / (4 * context.longest_piece);
  if (at_least > static_cast<size_t>(context.config.max_model_len))
    return too_long(context, fmt::format("more than {}", at_least));
  return encode(request, *text, context);
}

// How many of the prompt's tokens are kept where only one that does not fit is cut. It makes room
// for max_tokens, unless nothing would be left of it.
int kept_of_too_long(size_t prompt, const Request& request, int max_model_len) {
  const int longest = request.pool ? max_model_len : max_model_len - 1;
  const int most = request.stop.max_tokens;
  const bool cut = prompt > static_cast<size_t>(longest) && most > 0 && most < max_model_len;
  return cut ? max_model_len - most : longest;
}

// Keeps the tokens at one end, and no memory of the others: a request may have thousands of
// prompts.
void truncate(std::vector<Token>& prompt, const Request& request, const PrepareContext& context) {
  int keep = request.truncate_prompt;
  if (keep == 0) return;
  if (keep < 0) keep = kept_of_too_long(prompt.size(), request, context.config.max_model_len);
  if (prompt.size() <= static_cast<size_t>(keep)) return;
  const auto first = request.truncate_end ? prompt.begin() : prompt.end() - keep;
  prompt = std::vector<Token>(first, first + keep);
}

std::optional<Error> check_lengths(const Request& request, size_t prompt,
                                   const PrepareContext& context) {
  if (request.pool && prompt <= static_cast<size_t>(context.config.max_model_len))
    return std::nullopt;
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

// EOS ends a reply unless ignore_eos is set; a token that the client itself asked to stop at
// becomes the stop_reason.
void resolve_eos(const Request& request, const PrepareContext& context, Prepared& prepared) {
  // A constrained reply that is complete ends, whatever ignore_eos says.
  if (request.ignore_eos && !prepared.params.constraint) return;
  std::vector<Token> stops = request.stop.tokens.all(), added;
  for (Token eos : context.config.eos) {
    if (std::find(stops.begin(), stops.end(), eos) != stops.end()) continue;
    stops.push_back(eos);
    added.push_back(eos);
  }
  prepared.stop.tokens = std::move(stops);
  prepared.eos = std::move(added);
}

// Makes all of a prepared request but its prompt; max_tokens is not resolved yet.
Prepared common_part(const Request& request, const PrepareContext& context) {
  Prepared prepared;
  prepared.params = request.params;
  prepared.params.top_k = std::min(prepared.params.top_k, vocab_of(context));
  if (prepared.params.temperature < kGreedyBelow) prepared.params.temperature = 0;
  prepared.stop = request.stop;
  prepared.stop_strings = request.stop_strings;
  prepared.include_stop = request.include_stop;
  prepared.skip_special = request.skip_special;
  prepared.n = request.n;
  prepared.priority = request.priority;
  prepared.cache = request.cache;
  prepared.origin = request.origin;
  prepared.replica = request.replica;
  prepared.timeout_seconds = request.timeout_seconds;
  return prepared;
}

// Sets what depends on where the reply starts. Replies of which none reasons start alike, so that
// `first` has their constraint already; null: this is the first.
std::optional<Error> set_start(const Request& request, const PrepareContext& context,
                               const Prepared* first, Prepared& prepared) {
  if (context.split) context.split->set_up(request, prepared);
  const bool chat =
      request.split_reasoning || std::holds_alternative<text::Conversation>(request.input);
  if (first && !chat) {
    prepared.params.constraint = first->params.constraint;
    prepared.measured = first->measured;
    prepared.constraint_kind = first->constraint_kind;
    prepared.params.min_tokens = first->params.min_tokens;
    prepared.stop.tokens = first->stop.tokens;
    prepared.eos = first->eos;
    return std::nullopt;
  }
  auto error = add_constraint(request, context.split, context.constraints,
                              context.config.constrain_reasoning, prepared);
  if (!error) resolve_eos(request, context, prepared);
  return error;
}

// The prompt as the engine gets it: request.input, then request.begun, truncated if the request
// says so.
Result<std::vector<Token>> whole_prompt(const Request& request, const PrepareContext& context) {
  auto prompt = bounded_tokens(request, context);
  if (!prompt) return prompt.error();
  prompt->insert(prompt->end(), request.begun.begin(), request.begun.end());
  truncate(*prompt, request, context);
  if (prompt->empty()) return invalid("input", "the prompt is empty: it has no tokens");
  if (auto error = check_tokens("input", *prompt, vocab_of(context))) return *error;
  if (auto error = check_lengths(request, prompt->size(), context)) return *error;
  return prompt;
}

}  // namespace

size_t longest_piece(const text::Tokenizer& tokenizer) {
  size_t longest = 1;
  for (int token = 0; token < tokenizer.vocab_size(); ++token)
    longest = std::max(longest, tokenizer.piece(token).size());
  return longest;
}

// Tokenizing takes time in proportion to the text, on a thread that other requests wait for, so
// Service::max_text() bounds it. Text that exceeds the context many times is still tokenized, to be
// counted or truncated.
Result<std::vector<Token>> prompt_tokens(const Request& request, const PrepareContext& context) {
  if (has_tokens(request)) return std::get<std::vector<Token>>(request.input);
  auto text = prompt_text(request, context);
  if (!text) return text.error();
  const size_t most = Service::max_text(context.config.max_model_len);
  if (text->size() > most)
    return invalid("input_length",
                   fmt::format("the prompt has {} bytes of text, at most {} are tokenized",
                               text->size(), most));
  return encode(request, *text, context);
}

// A model that is pooled cannot generate, and the other way round.
std::optional<Error> check_kind(const Request& request, const PrepareContext& context) {
  if (request.pool == context.config.pooled.has_value()) return std::nullopt;
  return Error{Code::kUnsupported,
               request.pool ? "This server generates text and pools nothing: start it with "
                              "--runner pooling."
                            : "This server's model is pooled and cannot generate text: it has "
                              "/v1/embeddings, or /v1/score and /v1/rerank. Start a model that "
                              "generates, or this one with --runner generate.",
               "model"};
}

// The prompts of requests that are pooled, which have no output.
Result<std::vector<Prepared>> prepare_pooled(Request common, std::vector<PromptInput> prompts,
                                             const PrepareContext& context) {
  std::vector<Prepared> all;
  all.reserve(prompts.size());
  for (PromptInput& input : prompts) {
    common.input = std::move(input);
    auto prompt = whole_prompt(common, context);
    if (!prompt) return prompt.error();
    Prepared& prepared = all.emplace_back();
    prepared.prompt = std::move(*prompt);
    prepared.priority = common.priority;
    prepared.cache = common.cache;
    prepared.timeout_seconds = common.timeout_seconds;
    prepared.stop.max_tokens = 1;
    prepared.pooling = context.config.pooled->pooling;
  }
  return all;
}

// What the half of a request that this server does asks of it.
std::optional<Error> check_half(const Request& request, const PrepareContext& context) {
  const ServiceConfig& config = context.config;
  if (config.prefill_only && !request.origin)
    return Error{
        Code::kUnsupported,
        "This server computes prompts for others (--splitwise-role prefill): a request "
        "needs disaggregate_info or kv_transfer_params, which a router adds. Send this one "
        "to the router, or to a server of the role decode or mixed.",
        "disaggregate_info"};
  if (config.decode_only && request.origin && request.origin->port == 0)
    return invalid("kv_transfer_params",
                   "do_remote_decode is for a server of the role prefill; this one needs "
                   "do_remote_prefill, remote_host and remote_port");
  if (!config.prefill_only && !config.decode_only && request.origin)
    return Error{Code::kUnsupported,
                 "This server does both halves of a request itself (--splitwise-role mixed): leave "
                 "disaggregate_info and kv_transfer_params out.",
                 "disaggregate_info"};
  return std::nullopt;
}

Result<std::vector<Prepared>> prepare_requests(Request common, std::vector<PromptInput> prompts,
                                               const PrepareContext& context) {
  if (auto error = check_kind(common, context)) return *error;
  if (common.pool) return prepare_pooled(std::move(common), std::move(prompts), context);
  if (auto error = check_half(common, context)) return *error;
  if (auto error = check_common(common, context)) return *error;
  if (auto error = add_bad_words(common, context)) return *error;
  Prepared shared = common_part(common, context);
  if (auto error = add_reference(common, context, shared)) return *error;
  std::vector<Prepared> all;
  all.reserve(prompts.size());
  for (PromptInput& input : prompts) {
    common.input = std::move(input);
    auto prompt = whole_prompt(common, context);
    if (!prompt) return prompt.error();
    Prepared& prepared = all.emplace_back(shared);
    prepared.prompt = std::move(*prompt);
    if (auto error = set_start(common, context, all.size() > 1 ? &all.front() : nullptr, prepared))
      return *error;
    const int room = context.config.max_model_len - static_cast<int>(prepared.prompt.size());
    if (room < 1) return too_long(context, fmt::format("{}", prepared.prompt.size()));
    prepared.stop.max_tokens =
        shared.stop.max_tokens == 0 ? room : std::min(shared.stop.max_tokens, room);
    if (context.config.prefill_only) prepared.stop.max_tokens = 1;
  }
  if (auto error = check_reply(all, common.streamed, context)) return *error;
  return all;
}

Result<Prepared> prepare_request(Request request, const PrepareContext& context) {
  std::vector<PromptInput> prompts;
  prompts.push_back(std::move(request.input));
  auto prepared = prepare_requests(std::move(request), std::move(prompts), context);
  if (!prepared) return prepared.error();
  return std::move(prepared->front());
}

}  // namespace skiff::service
