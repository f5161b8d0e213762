#include "serve/openai/fields.h"
#include "serve/openai/prompt.h"

namespace skiff::openai {
namespace {

// An empty salt is refused: it would share the cache with all requests without a salt.
MaybeProblem read_cache_salt(const OrderedJson& value, CallDraft& draft) {
  constexpr size_t kMaxBytes = 1024;
  std::string salt;
  if (auto problem = read_string(value, salt)) return problem;
  if (salt.empty() || salt.size() > kMaxBytes)
    return Problem{fmt::format("must have 1 to {} bytes, but has {}", kMaxBytes, salt.size())};
  draft.call.request.cache.salt = std::move(salt);
  return std::nullopt;
}

MaybeProblem read_documents(const OrderedJson& value, CallDraft& draft) {
  if (!value.is_array()) return Problem{"must be a list of objects, but is " + described(value)};
  for (const OrderedJson& document : value)
    if (!document.is_object())
      return Problem{"must be a list of objects, but holds " + described(document)};
  draft.documents = value;
  return std::nullopt;
}

// OpenAI's predicted outputs: {"type": "content", "content": TEXT}, where TEXT may be a list of
// text parts.
MaybeProblem read_prediction(const OrderedJson& value, CallDraft& draft) {
  constexpr const char* kForm = R"(must be {"type": "content", "content": TEXT})";
  if (!value.is_object() || value.value("type", OrderedJson()) != "content" ||
      !value.contains("content"))
    return Problem{fmt::format("{}, but is {}", kForm, described(value))};
  const OrderedJson& content = value["content"];
  std::string text;
  if (!content.is_array()) {
    if (!content.is_string())
      return Problem{fmt::format("{}, but its content is {}", kForm, described(content))};
    text = content.get<std::string>();
  } else {
    for (const OrderedJson& part : content) {
      if (!part.is_object() || part.value("type", OrderedJson()) != "text" ||
          !part.value("text", OrderedJson()).is_string())
        return Problem{fmt::format(
            "has content that holds {}; only parts of type \"text\" are known", described(part))};
      text += part["text"].get<std::string>();
    }
  }
  draft.call.request.reference = std::move(text);
  return std::nullopt;
}

void set_truncation(CallDraft& draft, int64_t most) {
  draft.call.request.truncate_prompt = static_cast<int>(most);
}

MaybeProblem read_truncation(const OrderedJson& value, CallDraft& draft) {
  if (value == 0) return Problem{"must be -1 or at least 1, but is 0"};
  return integer_field(-1, kMaxTokens, set_truncation)(value, draft);
}

MaybeProblem read_truncation_side(const OrderedJson& value, CallDraft& draft) {
  if (value != "left" && value != "right")
    return Problem{"must be \"left\" or \"right\", but is " + described(value)};
  draft.call.request.truncate_end = value == "right";
  return std::nullopt;
}

}  // namespace

#define SET(target) [](CallDraft& draft, auto value) { (target) = std::move(value); }

std::vector<Field> input_fields() {
  using enum Scope;
  return {
      {"model", kBoth, string_field(SET(draft.call.model))},
      {"prompt_token_ids", kBoth, read_prompt_token_ids},
      {"completion_token_ids", kBoth, token_ids_field(SET(draft.call.request.begun))},
      {"truncate_prompt_tokens", kBoth, read_truncation},
      {"truncation_side", kBoth, read_truncation_side},
      {"prediction", kBoth, read_prediction},
      {"cache_salt", kBoth, read_cache_salt},
      {"cache_prompt", kBoth, boolean_field(SET(draft.call.request.cache.share))},
      {"add_special_tokens", kCompletions, boolean_field(SET(draft.call.request.add_special))},
      {"add_special_tokens", kChat, boolean_field(SET(draft.call.request.template_special))},
      {"parse_special_tokens", kChat, boolean_field(SET(draft.call.request.message_special))},
      {"chat_template", kChat, string_field(SET(draft.call.request.chat_template))},
      {"chat_template_kwargs", kChat,
       [](const OrderedJson& v, CallDraft& draft) {
         return read_template_kwargs(v, draft.conversation);
       }},
      {"documents", kChat, read_documents},
      {"add_generation_prompt", kChat, boolean_field(SET(draft.add_generation_prompt))},
      {"continue_final_message", kChat,
       boolean_field(SET(draft.conversation.continue_final_message))},
      {"disable_chat_template", kChat, boolean_field(SET(draft.raw_chat))},
  };
}
#undef SET

}  // namespace skiff::openai
