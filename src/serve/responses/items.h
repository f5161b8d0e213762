// serve/responses/items.h -- the items of a response's output as JSON.
#pragma once
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "text/answer/answer_event.h"

namespace skiff::responses {

struct Item {
  enum class Kind { kReasoning, kMessage, kCall };
  Kind kind = Kind::kMessage;
  std::string id;
  std::string text;           // the text of the part, or the arguments
  std::string call_id, name;  // name a call
  bool complete = true;
};

// Writes the item as an object. An item that has just begun has no text and no parts yet.
void write_item(const Item& item, bool begun, JsonWriter& json);
// Writes its one part, {"type": "output_text" or "reasoning_text", ...}.
void write_part(const Item& item, JsonWriter& json);

// Returns the name of an item, made of its kind, its number in the output and the response.
std::string item_id(Item::Kind kind, size_t number, const std::string& response);

}  // namespace skiff::responses
