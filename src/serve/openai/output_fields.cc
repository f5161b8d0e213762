#include "serve/openai/fields.h"

namespace skiff {
namespace {

// What every log-probability count means by -1: the whole vocabulary.
int logprob_count(int64_t x) { return x < 0 ? kAllLogprobs : static_cast<int>(x); }

MaybeProblem read_stream_options(const OrderedJson& value, OpenAiCall& call) {
  if (!value.is_object()) return Problem{"must be an object, but is " + told(value)};
  call.has_stream_options = true;
  for (const auto& [key, target] : {std::pair{"include_usage", &call.include_usage},
                                    std::pair{"continuous_usage_stats", &call.continuous_usage},
                                    std::pair{"include_obfuscation", &call.obfuscate}}) {
    const auto found = value.find(key);
    if (found == value.end() || found->is_null()) continue;
    if (auto problem = read_boolean(*found, *target))
      return Problem{fmt::format("{} {}", key, problem->what)};
  }
  // As in vLLM: who did not ask for usage must not meet a chunk that has it.
  call.continuous_usage = call.continuous_usage && call.include_usage;
  return std::nullopt;
}

template <class Set>
FieldReader most_tokens_field(int64_t low, Set set) {
  return [=](const OrderedJson& value, OpenAiCall& call) -> MaybeProblem {
    int64_t most = 0;
    if (auto problem = read_integer(value, low, kMostTokens, most)) {
      if (as_integer(value))
        problem->what =
            fmt::format("can be defined [{}, max_model_len), but now it's {}.", low, told(value));
      return problem;
    }
    set(call, static_cast<int>(most));
    return std::nullopt;
  };
}

void set_max_completion_tokens(OpenAiCall& call, int most) {
  call.has_max_completion_tokens = true;
  call.request.stop.max_tokens = most;
}

// The older name; the newer one wins, wherever it stands.
void set_max_tokens(OpenAiCall& call, int most) {
  if (!call.has_max_completion_tokens) call.request.stop.max_tokens = most;
}

// Completions may ask for no output at all: the prompt is echoed and scored.
void set_completion_max_tokens(OpenAiCall& call, int most) {
  if (call.has_max_completion_tokens) return;
  call.discard_output = most == 0;
  call.request.stop.max_tokens = most == 0 ? 1 : most;
}

}  // namespace

#define SET(target)                                                \
  [](OpenAiCall& call, auto value) {                               \
    (target) = static_cast<std::decay_t<decltype(target)>>(value); \
  }

std::vector<Field> output_fields() {
  using enum Scope;
  return {
      {"max_tokens", kChat, most_tokens_field(1, set_max_tokens)},
      {"max_tokens", kCompletions, most_tokens_field(0, set_completion_max_tokens)},
      {"max_completion_tokens", kBoth, most_tokens_field(1, set_max_completion_tokens)},
      {"stop", kBoth,
       [](const OrderedJson& value, OpenAiCall& call) {
         return read_strings(value, call.request.stop_strings);
       }},
      {"stop_token_ids", kBoth, token_ids_field(SET(call.request.stop.tokens))},
      {"include_stop_str_in_output", kBoth, boolean_field(SET(call.request.include_stop))},
      {"skip_special_tokens", kBoth, boolean_field(SET(call.request.skip_special))},
      {"logprobs", kChat, boolean_field(SET(call.logprobs))},
      {"top_logprobs", kChat,
       integer_field(-1, kAllLogprobs,
                     [](OpenAiCall& call, int64_t x) { call.top_logprobs = logprob_count(x); })},
      {"logprobs", kCompletions,
       integer_field(
           -1, kAllLogprobs,
           [](OpenAiCall& call, int64_t x) { call.request.params.logprobs = logprob_count(x); })},
      {"prompt_logprobs", kBoth,
       integer_field(-1, kAllLogprobs,
                     [](OpenAiCall& call, int64_t x) {
                       call.request.params.prompt_logprobs = logprob_count(x);
                     })},
      {"stream", kBoth, boolean_field(SET(call.stream))},
      {"stream_options", kBoth, read_stream_options},
      {"max_streaming_response_tokens", kBoth,
       integer_field(1, kMostTokens, SET(call.max_streaming_tokens))},
      {"echo", kCompletions, boolean_field(SET(call.echo))},
      {"return_token_ids", kBoth, boolean_field(SET(call.return_token_ids))},
      {"timeout", kBoth, number_field(0.001, 604800, SET(call.request.timeout_seconds))},
      {"request_id", kBoth, string_field(SET(call.request_id))},
  };
}
#undef SET

}  // namespace skiff
