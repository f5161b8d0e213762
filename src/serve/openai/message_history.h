// serve/openai/message_history.h -- what the messages of a conversation say about earlier reasoning
// and tool calls, in the form that chat templates read.
#pragma once
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace skiff::openai {

// Moves reasoning, under any of its names (reasoning, thoughts), to reasoning_content, and turns
// the arguments of tool calls, which clients send as text, into objects. `place` names the message
// in errors.
std::optional<Error> normalize_history(OrderedJson& message, const std::string& place);

}  // namespace skiff::openai
