#include "serve/openai/fields.h"

namespace skiff::openai {
namespace {

// In every count of log-probabilities -1 stands for the whole vocabulary.
int logprob_count(int64_t x) { return x < 0 ? kAllLogprobs : static_cast<int>(x); }

MaybeProblem read_stream_options(const OrderedJson& value, CallDraft& draft) {
  if (!value.is_object()) return Problem{"must be an object, but is " + described(value)};
  draft.has_stream_options = true;
  for (const auto& [key, target] :
       {std::pair{"include_usage", &draft.call.include_usage},
        std::pair{"continuous_usage_stats", &draft.call.continuous_usage},
        std::pair{"include_obfuscation", &draft.call.obfuscate}}) {
    const auto found = value.find(key);
    if (found == value.end() || found->is_null()) continue;
    if (auto problem = read_boolean(*found, *target))
      return Problem{fmt::format("{} {}", key, problem->what)};
  }
  // Usage appears in a chunk only if include_usage is set, which is vLLM's rule.
  draft.call.continuous_usage = draft.call.continuous_usage && draft.call.include_usage;
  return std::nullopt;
}

template <class Set>
FieldReader most_tokens_field(int64_t low, Set set) {
  return [=](const OrderedJson& value, CallDraft& draft) -> MaybeProblem {
    int64_t most = 0;
    if (auto problem = read_integer(value, low, kMaxTokens, most)) {
      if (as_integer(value))
        problem->what = fmt::format("can be defined [{}, max_model_len), but now it's {}.", low,
                                    described(value));
      return problem;
    }
    set(draft, static_cast<int>(most));
    return std::nullopt;
  };
}

void set_max_completion_tokens(CallDraft& draft, int most) {
  draft.has_max_completion_tokens = true;
  draft.call.discard_output = false;  // a max_tokens of 0 may have set it before
  draft.call.request.stop.max_tokens = most;
}

// The older name. max_completion_tokens takes precedence, in whatever order they come.
void set_max_tokens(CallDraft& draft, int most) {
  if (!draft.has_max_completion_tokens) draft.call.request.stop.max_tokens = most;
}

// With max_tokens 0 a completion has no output: the prompt is only echoed and scored.
void set_completion_max_tokens(CallDraft& draft, int most) {
  if (draft.has_max_completion_tokens) return;
  draft.call.discard_output = most == 0;
  draft.call.request.stop.max_tokens = most == 0 ? 1 : most;
}

}  // namespace

#define SET(target)                                                \
  [](CallDraft& draft, auto value) {                               \
    (target) = static_cast<std::decay_t<decltype(target)>>(value); \
  }

std::vector<Field> output_fields() {
  using enum Scope;
  return {
      {"max_tokens", kChat, most_tokens_field(1, set_max_tokens)},
      {"max_tokens", kCompletions, most_tokens_field(0, set_completion_max_tokens)},
      {"max_completion_tokens", kBoth, most_tokens_field(1, set_max_completion_tokens)},
      {"stop", kBoth,
       [](const OrderedJson& value, CallDraft& draft) {
         return read_strings(value, draft.call.request.stop_strings);
       }},
      {"stop_token_ids", kBoth, token_ids_field(SET(draft.call.request.stop.tokens))},
      {"include_stop_str_in_output", kBoth, boolean_field(SET(draft.call.request.include_stop))},
      {"skip_special_tokens", kBoth, boolean_field(SET(draft.call.request.skip_special))},
      {"logprobs", kChat, boolean_field(SET(draft.call.logprobs))},
      {"top_logprobs", kChat,
       integer_field(-1, kAllLogprobs,
                     [](CallDraft& draft, int64_t x) { draft.top_logprobs = logprob_count(x); })},
      {"logprobs", kCompletions,
       integer_field(-1, kAllLogprobs,
                     [](CallDraft& draft, int64_t x) {
                       draft.call.request.params.logprobs = logprob_count(x);
                     })},
      {"prompt_logprobs", kBoth,
       integer_field(-1, kAllLogprobs,
                     [](CallDraft& draft, int64_t x) {
                       draft.call.request.params.prompt_logprobs = logprob_count(x);
                     })},
      {"include_draft_logprobs", kBoth,
       boolean_field(SET(draft.call.request.params.draft_logprobs))},
      {"stream", kBoth, boolean_field(SET(draft.call.stream))},
      {"stream_options", kBoth, read_stream_options},
      {"max_streaming_response_tokens", kBoth,
       integer_field(1, kMaxTokens, SET(draft.call.max_streaming_tokens))},
      {"stream_interval", kBoth,
       integer_field(1, kMaxTokens, SET(draft.call.max_streaming_tokens))},
      {"return_tokens_as_token_ids", kBoth, boolean_field(SET(draft.call.tokens_as_ids))},
      {"echo", kCompletions, boolean_field(SET(draft.call.echo))},
      {"return_token_ids", kBoth, boolean_field(SET(draft.call.return_token_ids))},
      {"timeout", kBoth, number_field(0.001, 604800, SET(draft.call.request.timeout_seconds))},
      {"request_id", kBoth, string_field(SET(draft.call.request_id))},
  };
}
#undef SET

}  // namespace skiff::openai
