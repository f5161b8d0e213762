// serve/messages/writer.h -- answers and errors in the form of Anthropic's Messages API.
#pragma once
#include <memory>
#include <string>

#include "serve/turn/turn.h"

namespace skiff::messages {

// With thinking.display "omitted" in the request, blocks of thinking are empty.
std::unique_ptr<turn::TurnWriter> make_writer(turn::TurnInfo info, const turn::TurnBody& body);

// {"type": "error", "error": {"type", "message"}, "request_id"}.
std::string error_text(const http::ApiError& error, const std::string& request_id);

}  // namespace skiff::messages
