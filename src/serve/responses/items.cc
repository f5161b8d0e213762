#include "serve/responses/items.h"

#include <fmt/format.h>

namespace skiff::responses {
namespace {

using Kind = Item::Kind;

void write_parts(const Item& item, bool begun, JsonWriter& json) {
  json.key("content").open_array();
  if (!begun) write_part(item, json);
  json.close_array();
}

}  // namespace

std::string item_id(Kind kind, size_t number, const std::string& response) {
  const char* prefix = kind == Kind::kReasoning ? "rs" : kind == Kind::kMessage ? "msg" : "fc";
  return fmt::format("{}_{}_{}", prefix, response, number);
}

void write_part(const Item& item, JsonWriter& json) {
  const bool message = item.kind == Kind::kMessage;
  json.open_object().key("type").string(message ? "output_text" : "reasoning_text");
  json.key("text").string(item.text);
  if (message) {
    json.key("annotations").open_array().close_array();
    json.key("logprobs").open_array().close_array();
  }
  json.close_object();
}

void write_item(const Item& item, bool begun, JsonWriter& json) {
  const char* status = begun ? "in_progress" : item.complete ? "completed" : "incomplete";
  json.open_object().key("id").string(item.id).key("type");
  switch (item.kind) {
    case Kind::kReasoning:
      json.string("reasoning").key("summary").open_array().close_array();
      write_parts(item, begun, json);
      json.key("encrypted_content").null();
      break;
    case Kind::kMessage:
      json.string("message").key("role").string("assistant");
      write_parts(item, begun, json);
      break;
    case Kind::kCall:
      json.string("function_call").key("call_id").string(item.call_id);
      json.key("name").string(item.name).key("arguments").string(item.text);
      break;
  }
  json.key("status").string(status).close_object();
}

}  // namespace skiff::responses
