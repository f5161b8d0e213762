#include "text/chat/chat_template_continue.h"

#include "text/jinja/search.h"
#include "text/jinja/unicode.h"

namespace skiff::text {
namespace {

const std::string* text_of(const OrderedJson& object, const char* key) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_string()) return nullptr;
  return object[key].get_ptr<const std::string*>();
}

const std::string* final_text(const OrderedJson& messages) {
  if (!messages.is_array() || messages.empty()) return nullptr;
  const OrderedJson& last = messages.back();
  if (const std::string* text = text_of(last, "content")) return text;
  if (!last.is_object() || !last.contains("content") || !last["content"].is_array()) return nullptr;
  const OrderedJson& parts = last["content"];
  for (auto part = parts.rbegin(); part != parts.rend(); ++part)
    if (const std::string* text = text_of(*part, "text")) return text;
  return nullptr;
}

Error refused(std::string what) {
  return {Code::kInvalid, "continue_final_message: " + std::move(what), "messages"};
}

}  // namespace

Result<std::string> cut_in_final_message(std::string rendered, const OrderedJson& messages) {
  using jinja::Side;
  const std::string* text = final_text(messages);
  if (!text) return refused("the last message has no text to continue");
  const std::string_view bare = jinja::strip(*text, Side::kBoth);
  const size_t start = jinja::find_last_text(rendered, bare);
  if (start == std::string::npos)
    return refused("the chat template does not keep the text of the last message as it is");
  const bool kept = std::string_view(rendered).substr(start).starts_with(*text);
  rendered.resize(start + (kept ? text->size() : bare.size()));
  return rendered;
}

}  // namespace skiff::text
