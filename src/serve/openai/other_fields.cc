// Fields that clients send and that have no effect here, and fields whose effect is not
// implemented: those are refused by name, so that no client relies on an effect that is not there.
#include "serve/openai/fields.h"

namespace skiff::openai {
namespace {

template <class Kind>
FieldReader without_effect(bool (OrderedJson::*is_kind)() const noexcept, Kind kind) {
  return [=](const OrderedJson& value, CallDraft&) -> MaybeProblem {
    if ((value.*is_kind)()) return std::nullopt;
    return Problem{fmt::format("must be {}, but is {}", kind, described(value))};
  };
}

FieldReader ignored_string() { return without_effect(&OrderedJson::is_string, "a string"); }
FieldReader ignored_boolean() { return without_effect(&OrderedJson::is_boolean, "true or false"); }

// `what` names the missing feature. The value false is accepted.
FieldReader not_yet(const char* what) {
  return [=](const OrderedJson& value, CallDraft&) -> MaybeProblem {
    if (value == false) return std::nullopt;
    return Problem{fmt::format("is not supported yet ({}); leave it out", what),
                   Code::kUnsupported};
  };
}

// An older name of OpenAI's API, which has a newer one.
FieldReader superseded_by(const char* newer) {
  return [=](const OrderedJson& value, CallDraft&) -> MaybeProblem {
    if (value == false) return std::nullopt;
    return Problem{fmt::format("is not supported; use \"{}\", which has replaced it", newer),
                   Code::kUnsupported};
  };
}

// A name of other servers, which has another one here.
FieldReader spelt_here(const char* here) {
  return [=](const OrderedJson& value, CallDraft&) -> MaybeProblem {
    if (value.is_null()) return std::nullopt;
    return Problem{fmt::format("is not a field of this server; use \"{}\"", here),
                   Code::kUnsupported};
  };
}

// A way of sampling that this server does not have. The number that switches it off is accepted.
FieldReader off_at(double off, const char* what) {
  return [=](const OrderedJson& value, CallDraft&) -> MaybeProblem {
    if (value.is_number() && value.get<double>() == off) return std::nullopt;
    return Problem{fmt::format("is not supported ({}); leave it out", what), Code::kUnsupported};
  };
}

// A switch of which this server supports one position.
FieldReader always(bool position, const char* why) {
  return [=](const OrderedJson& value, CallDraft&) -> MaybeProblem {
    bool given = false;
    if (auto problem = read_boolean(value, given)) return problem;
    if (given == position) return std::nullopt;
    return Problem{fmt::format("can only be {}: {}", position, why), Code::kUnsupported};
  };
}

MaybeProblem read_metadata(const OrderedJson& value, CallDraft&) {
  if (!value.is_object()) return Problem{"must be an object, but is " + described(value)};
  if (value.contains("raw_request"))
    return Problem{"must not hold \"raw_request\": metadata sets no parameters"};
  return std::nullopt;
}

MaybeProblem read_modalities(const OrderedJson& value, CallDraft&) {
  if (!value.is_array()) return Problem{"must be a list, but is " + described(value)};
  for (const OrderedJson& one : value)
    if (one != "text")
      return Problem{fmt::format("holds {}; only \"text\" is supported", described(one)),
                     Code::kUnsupported};
  return std::nullopt;
}

}  // namespace

std::vector<Field> other_fields() {
  using enum Scope;
  return {
      // Fields without effect.
      {"user", kBoth, ignored_string()},
      {"metadata", kBoth, read_metadata},
      {"store", kChat, ignored_boolean()},
      {"service_tier", kBoth, ignored_string()},
      {"safety_identifier", kBoth, ignored_string()},
      {"prompt_cache_key", kBoth, ignored_string()},
      {"prompt_cache_retention", kBoth, ignored_string()},
      {"verbosity", kChat, ignored_string()},
      {"modalities", kChat, read_modalities},
      {"collect_metrics", kBoth, ignored_boolean()},
      {"trace_context", kBoth, without_effect(&OrderedJson::is_structured, "an object")},
      {"spaces_between_special_tokens", kBoth, ignored_boolean()},
      {"detokenize", kBoth, always(true, "replies are text")},
      {"include_logprobs_decode_token", kBoth,
       always(true, "log-probabilities contain the text of tokens")},
      {"use_beam_search", kBoth, always(false, "replies are sampled, there is no beam search")},
      {"echo", kChat, always(false, "only /v1/completions echoes")},
      // Log-probabilities are the model's, before temperature and top_p.
      {"temp_scaled_logprobs", kBoth, not_yet("log-probabilities after temperature")},
      {"top_p_normalized_logprobs", kBoth, not_yet("log-probabilities after top_p")},
      {"logprob_token_ids", kBoth, not_yet("log-probabilities of tokens that the client names")},
      {"repetition_detection", kBoth, not_yet("an end where a reply repeats itself")},
      {"reasoning_max_tokens", kCompletions, not_yet("reasoning")},
      {"response_max_tokens", kBoth, not_yet("reasoning")},
      {"thinking_token_budget", kCompletions, not_yet("reasoning")},
      {"n_predict", kBoth, spelt_here("max_tokens")},
      {"max_new_tokens", kBoth, spelt_here("max_tokens")},
      {"min_new_tokens", kBoth, spelt_here("min_tokens")},
      {"repeat_penalty", kBoth, spelt_here("repetition_penalty")},
      {"length_penalty", kBoth, off_at(1, "it is for beam search")},
      {"typical_p", kBoth, off_at(1, "locally typical sampling")},
      {"mirostat", kBoth, off_at(0, "Mirostat")},
      {"dry_multiplier", kBoth, off_at(0, "DRY")},
      {"xtc_probability", kBoth, off_at(0, "XTC")},
      {"functions", kChat, superseded_by("tools")},
      {"function_call", kChat, superseded_by("tool_choice")},
      {"audio", kChat, not_yet("audio")},
      {"web_search_options", kChat, not_yet("web search")},
      {"mm_hashes", kBoth, not_yet("images and video")},
      {"mm_processor_kwargs", kBoth, not_yet("images and video")},
      {"media_io_kwargs", kBoth, not_yet("images and video")},
      {"prompt_embeds", kBoth, not_yet("prompts as embeddings")},
      {"suffix", kCompletions, not_yet("filling in the middle")},
      {"allowed_token_ids", kBoth, not_yet("sampling from a list of tokens")},
      {"logits_processors", kBoth, not_yet("processors of the client's own")},
  };
}

}  // namespace skiff::openai
