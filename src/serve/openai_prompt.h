// serve/openai_prompt.h -- the input half of a request body: messages, tools, prompts, token ids.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "serve/openai_params.h"

namespace skiff {

// Appends to `out`; false if `value` is not a list of integers in [0, 2^31).
bool read_token_ids(const OrderedJson& value, std::vector<Token>& out);

// What is wrong, if anything.
std::optional<std::string> read_tools(const OrderedJson& value, Conversation& conversation);

// Both fill call.prompts.
std::optional<Error> read_messages(const OrderedJson& body, OpenAiCall& call);
std::optional<Error> read_prompt(const OrderedJson& body, OpenAiCall& call);

}  // namespace skiff
