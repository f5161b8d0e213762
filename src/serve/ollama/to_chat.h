// serve/ollama/to_chat.h -- a request of Ollama's API as the body of a chat completion.
#pragma once
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace skiff::ollama {

enum class Endpoint { kChat, kGenerate };

// Fields that the API does not have go along unchanged: they are Skiff's own, or unknown.
// Error::field names a field of `body`.
Result<OrderedJson> to_chat(const OrderedJson& body, Endpoint endpoint);

// Returns whether the request only asks for the model to be loaded: no messages, or an empty
// prompt.
bool only_loads(const OrderedJson& body, Endpoint endpoint);

// A name as Ollama's clients write it, without the tag that they add: "demo:latest" is "demo".
std::string model_name(const OrderedJson& body);
// An Error where the body's name of a model is no string, which must not pass for none.
std::optional<Error> check_model_name(const OrderedJson& body);

}  // namespace skiff::ollama
