// serve/openai/prompt.h -- the input half of a request body: messages, tools, prompts, token ids.
#pragma once
#include <optional>

#include "base/json.h"
#include "base/result.h"
#include "serve/openai/params.h"
#include "serve/openai/values.h"

namespace skiff {

MaybeProblem read_tools(const OrderedJson& value, Conversation& conversation);
// Variables for the template. Those that the server sets itself are refused.
MaybeProblem read_template_kwargs(const OrderedJson& value, Conversation& conversation);
// A list of token ids, or a list of such lists.
MaybeProblem read_prompt_token_ids(const OrderedJson& value, OpenAiCall& call);

// Checks each message and joins its text parts.
Result<OrderedJson> read_message_list(const OrderedJson& messages);
// nullopt, or why the two cannot be had together, or not for these messages.
std::optional<Error> check_continuation(const Conversation& conversation,
                                        std::optional<bool> add_generation_prompt);

// Both fill call.prompts.
std::optional<Error> read_messages(const OrderedJson& body, OpenAiCall& call);
std::optional<Error> read_prompt(const OrderedJson& body, OpenAiCall& call);

}  // namespace skiff
