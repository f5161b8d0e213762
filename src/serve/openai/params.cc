#include "serve/openai/params.h"

#include <algorithm>
#include <unordered_map>

#include "serve/openai/fields.h"
#include "serve/openai/prompt.h"

namespace skiff::openai {
namespace {

using FieldTable = std::unordered_map<std::string_view, Field>;

FieldTable table_of(Scope scope) {
  FieldTable table;
  for (const auto& make : {sampling_fields, output_fields, input_fields, tool_fields,
                           constraint_fields, splitting_fields, other_fields})
    for (Field& field : make())
      if (field.scope == Scope::kBoth || field.scope == scope) table.emplace(field.name, field);
  return table;
}

// The input is read after all fields, because they affect how it is read.
bool is_input(Endpoint endpoint, std::string_view name) {
  return name == (endpoint == Endpoint::kChat ? "messages" : "prompt");
}

void note_unknown(OpenAiCall& call, const std::string& name) {
  constexpr size_t kMaxNames = 16, kMaxBytes = 64;
  if (call.unknown_fields.size() < kMaxNames)
    call.unknown_fields.push_back(name.substr(0, kMaxBytes));
}

Error invalid(std::string field, std::string what) {
  return Error{Code::kInvalid, std::move(what), std::move(field)};
}

std::optional<Error> check_choices(OpenAiCall& call) {
  if (call.best_of == 0) call.best_of = call.request.n;
  if (call.best_of < call.request.n)
    return invalid("best_of", fmt::format("best_of ({}) must not be less than n ({})", call.best_of,
                                          call.request.n));
  if (call.stream && call.best_of > call.request.n)
    return invalid("best_of", "a stream cannot choose: best_of must equal n where stream is true");
  return std::nullopt;
}

std::optional<Error> check_logprobs(CallDraft& draft, Endpoint endpoint) {
  OpenAiCall& call = draft.call;
  SamplingParams& params = call.request.params;
  if (endpoint == Endpoint::kChat) {
    // Some clients send zero for "none".
    if (draft.top_logprobs > 0 && !call.logprobs)
      return invalid("top_logprobs", "when using `top_logprobs`, `logprobs` must be set to true.");
    if (call.logprobs) params.logprobs = std::max(draft.top_logprobs, 0);
  }
  call.prompt_logprobs = params.prompt_logprobs != kNoLogprobs;
  if (call.echo && params.logprobs != kNoLogprobs && params.prompt_logprobs == kNoLogprobs)
    params.prompt_logprobs = params.logprobs;
  return std::nullopt;
}

std::optional<Error> check_combinations(CallDraft& draft, Endpoint endpoint) {
  OpenAiCall& call = draft.call;
  if (draft.has_stream_options && !call.stream)
    return invalid("stream_options", "Stream options can only be defined when `stream=True`.");
  if (call.discard_output && !call.echo)
    return invalid("max_tokens", "max_tokens must be at least 1, unless echo is true");
  if (call.request_id.size() > 256)
    return invalid("request_id", "request_id is longer than 256 bytes");
  if (auto error = check_choices(call)) return error;
  return check_logprobs(draft, endpoint);
}

void set_defaults(service::Request& request, const service::SamplingDefaults& defaults) {
  SamplingParams& params = request.params;
  params.temperature = defaults.temperature;
  params.top_p = defaults.top_p;
  params.top_k = defaults.top_k;
  params.min_p = defaults.min_p;
  params.repetition = defaults.repetition;
}

// The min_tokens of a request overrides a lower maximum of the model's generation_config.json.
void set_default_length(OpenAiCall& call, const service::SamplingDefaults& defaults) {
  int& most = call.request.stop.max_tokens;
  if (most == 0 && !call.discard_output && defaults.max_tokens > 0)
    most = std::max(defaults.max_tokens, call.request.params.min_tokens);
}

}  // namespace

const Field* find_field(Endpoint endpoint, std::string_view name) {
  static const FieldTable chat = table_of(Scope::kChat);
  static const FieldTable completions = table_of(Scope::kCompletions);
  const FieldTable& table = endpoint == Endpoint::kChat ? chat : completions;
  const auto found = table.find(name);
  return found == table.end() ? nullptr : &found->second;
}

Result<OpenAiCall> parse_openai_call(const OrderedJson& body, Endpoint endpoint,
                                     const service::SamplingDefaults& defaults) {
  if (!body.is_object())
    return invalid("", "the body must be a JSON object, but is " + described(body));
  CallDraft draft;
  set_defaults(draft.call.request, defaults);
  draft.call.request.split_reasoning = endpoint == Endpoint::kChat;
  for (const auto& [name, value] : body.items()) {
    const Field* field = find_field(endpoint, name);
    if (!field && !is_input(endpoint, name)) note_unknown(draft.call, name);
    if (!field || value.is_null()) continue;
    if (auto problem = field->read(value, draft))
      return Error{problem->code, fmt::format("{} {}", name, problem->what), name};
  }
  if (auto error = set_whitespace(draft)) return *error;
  set_default_length(draft.call, defaults);
  if (auto error = check_combinations(draft, endpoint)) return *error;
  if (auto error =
          endpoint == Endpoint::kChat ? read_messages(body, draft) : read_prompt(body, draft))
    return *error;
  return std::move(draft.call);
}

}  // namespace skiff::openai
