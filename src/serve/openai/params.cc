#include "serve/openai/params.h"

#include <algorithm>
#include <unordered_map>

#include "serve/openai/fields.h"
#include "serve/openai/prompt.h"

namespace skiff {
namespace {

using FieldTable = std::unordered_map<std::string_view, Field>;

FieldTable table_of(Scope scope) {
  FieldTable table;
  for (const auto& make : {sampling_fields, output_fields, input_fields, other_fields})
    for (Field& field : make())
      if (field.scope == Scope::kBoth || field.scope == scope) table.emplace(field.name, field);
  return table;
}

// Parts of the body that are read after all fields, because those say how.
bool is_input(Endpoint endpoint, std::string_view name) {
  return name == (endpoint == Endpoint::kChat ? "messages" : "prompt");
}

void note_unknown(OpenAiCall& call, const std::string& name) {
  constexpr size_t kMostNames = 16, kMostBytes = 64;
  if (call.unknown_fields.size() < kMostNames)
    call.unknown_fields.push_back(name.substr(0, kMostBytes));
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

std::optional<Error> check_logprobs(OpenAiCall& call, Endpoint endpoint) {
  SamplingParams& params = call.request.params;
  if (endpoint == Endpoint::kChat) {
    // Zero is what some clients send for "none".
    if (call.top_logprobs > 0 && !call.logprobs)
      return invalid("top_logprobs", "when using `top_logprobs`, `logprobs` must be set to true.");
    if (call.logprobs) params.logprobs = std::max(call.top_logprobs, 0);
  }
  call.prompt_logprobs = params.prompt_logprobs != kNoLogprobs;
  if (call.echo && params.logprobs != kNoLogprobs && params.prompt_logprobs == kNoLogprobs)
    params.prompt_logprobs = params.logprobs;
  return std::nullopt;
}

std::optional<Error> check_combinations(OpenAiCall& call, Endpoint endpoint) {
  if (call.has_stream_options && !call.stream)
    return invalid("stream_options", "Stream options can only be defined when `stream=True`.");
  if (call.discard_output && !call.echo)
    return invalid("max_tokens", "max_tokens must be at least 1, unless echo is true");
  if (call.request_id.size() > 256)
    return invalid("request_id", "request_id is longer than 256 bytes");
  if (auto error = check_choices(call)) return error;
  return check_logprobs(call, endpoint);
}

void set_defaults(Request& request, const SamplingDefaults& defaults) {
  SamplingParams& params = request.params;
  params.temperature = defaults.temperature;
  params.top_p = defaults.top_p;
  params.top_k = defaults.top_k;
  params.min_p = defaults.min_p;
  params.repetition = defaults.repetition;
}

// A maximum that the model's folder recommends gives way to the minimum that a request asks for.
void set_default_length(OpenAiCall& call, const SamplingDefaults& defaults) {
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
                                     const SamplingDefaults& defaults) {
  if (!body.is_object()) return invalid("", "the body must be a JSON object, but is " + told(body));
  OpenAiCall call;
  set_defaults(call.request, defaults);
  for (const auto& [name, value] : body.items()) {
    const Field* field = find_field(endpoint, name);
    if (!field && !is_input(endpoint, name)) note_unknown(call, name);
    if (!field || value.is_null()) continue;
    if (auto problem = field->read(value, call))
      return Error{problem->code, fmt::format("{} {}", name, problem->what), name};
  }
  set_default_length(call, defaults);
  if (auto error = check_combinations(call, endpoint)) return *error;
  if (auto error =
          endpoint == Endpoint::kChat ? read_messages(body, call) : read_prompt(body, call))
    return *error;
  return call;
}

}  // namespace skiff
