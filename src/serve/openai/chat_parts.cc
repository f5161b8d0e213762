#include "serve/openai/chat_parts.h"

#include "base/json_text.h"

namespace skiff::openai {
namespace {

using answer::AnswerEvent;
using answer::AnswerEvents;
using answer::Part;

struct Call {
  std::string id, name, arguments;
};

void write_calls(const std::vector<Call>& calls, JsonWriter& json) {
  json.key("tool_calls").open_array();
  for (const Call& call : calls) {
    json.open_object().key("id").string(call.id).key("type").string("function");
    json.key("function").open_object().key("name").string(call.name);
    json.key("arguments").string(call.arguments).close_object().close_object();
  }
  json.close_array();
}

std::string call_head(const AnswerEvent& event) {
  std::string out;
  JsonWriter json(out);
  json.key("tool_calls").open_array().open_object().key("index").integer(event.call);
  json.key("id").string(event.id).key("type").string("function");
  json.key("function").open_object().key("name").string(event.text);
  json.key("arguments").string("").close_object().close_object().close_array();
  return out;
}

std::string call_arguments(const AnswerEvent& event) {
  std::string out;
  JsonWriter json(out);
  json.key("tool_calls").open_array().open_object().key("index").integer(event.call);
  json.key("function").open_object().key("arguments").string(event.text);
  json.close_object().close_object().close_array();
  return out;
}

}  // namespace

std::vector<std::string_view> ChatParts::reasoning_fields() const {
  std::vector<std::string_view> fields;
  if (!call_.include_reasoning) return fields;
  if (config_.reasoning_content) fields.push_back("reasoning_content");
  if (config_.reasoning) fields.push_back("reasoning");
  return fields;
}

std::string ChatParts::delta(const AnswerEvent& event) const {
  std::string out;
  JsonWriter json(out);
  switch (event.part) {
    case Part::kReasoning:
      for (const std::string_view field : reasoning_fields()) json.key(field).string(event.text);
      return out;
    case Part::kContent:
      json.key("content").string(event.text);
      return out;
    case Part::kCallBegin:
      return call_head(event);
    case Part::kArguments:
      return call_arguments(event);
    default:
      return out;
  }
}

std::vector<std::string> ChatParts::deltas(const AnswerEvents& events) {
  std::vector<std::string> out;
  for (const AnswerEvent& event : events) {
    if (event.part == Part::kCallBegin) ++calls_;
    if (event.part == Part::kBroken) --calls_;
    if (std::string members = delta(event); !members.empty()) out.push_back(std::move(members));
  }
  return out;
}

void ChatParts::write_message(const AnswerEvents& events, JsonWriter& json) {
  std::string content, reasoning;
  std::vector<Call> calls;
  for (const AnswerEvent& event : events) {
    if (event.part == Part::kContent) content += event.text;
    if (event.part == Part::kReasoning) reasoning += event.text;
    if (event.part == Part::kCallBegin) calls.push_back({event.id, event.text, {}});
    if (event.part == Part::kArguments) calls.back().arguments += event.text;
    if (event.part == Part::kBroken) calls.pop_back();
  }
  calls_ = static_cast<int>(calls.size());
  json.key("content");
  if (content.empty() && !calls.empty())
    json.null();
  else
    json.string(content);
  if (!reasoning.empty())
    for (const std::string_view field : reasoning_fields()) json.key(field).string(reasoning);
  if (!calls.empty()) write_calls(calls, json);
}

}  // namespace skiff::openai
