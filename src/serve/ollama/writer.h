// serve/ollama/writer.h -- answers in the form of Ollama's API: one JSON object on each line of a
// stream, the last with counts and times in nanoseconds.
#pragma once
#include <chrono>
#include <memory>
#include <string>

#include "serve/ollama/to_chat.h"
#include "serve/turn/turn.h"

namespace skiff::ollama {

std::unique_ptr<turn::TurnWriter> make_writer(turn::TurnInfo info, Endpoint endpoint);

// {"error": text}
std::string error_text(const http::ApiError& error);

// The answer to a request that only loads the model, which is loaded already.
std::string loaded_text(const std::string& model, Endpoint endpoint);

// RFC 3339 in UTC, with nanoseconds.
std::string time_text(std::chrono::system_clock::time_point time);

}  // namespace skiff::ollama
