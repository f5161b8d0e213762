// serve/openai/prompt.h -- the input of a request body: messages, tools, prompts, token ids.
#pragma once
#include <optional>

#include "base/json.h"
#include "base/result.h"
#include "serve/openai/call_draft.h"
#include "serve/openai/values.h"

namespace skiff::openai {

MaybeProblem read_tools(const OrderedJson& value, text::Conversation& conversation);
// Reads "auto", "none", "required", "any", one function, or allowed_tools.
MaybeProblem read_tool_choice(const OrderedJson& value, service::ToolChoice& choice);
// Reads variables for the template. Variables that the server itself sets are refused.
MaybeProblem read_template_kwargs(const OrderedJson& value, text::Conversation& conversation);
// Reads a list of token ids, or a list of such lists.
MaybeProblem read_prompt_token_ids(const OrderedJson& value, CallDraft& draft);

// Checks each message and joins its text parts.
Result<OrderedJson> read_message_list(const OrderedJson& messages);
// An Error if continue_final_message conflicts with add_generation_prompt or does not fit the last
// message.
std::optional<Error> check_continuation(const text::Conversation& conversation,
                                        std::optional<bool> add_generation_prompt);

// Both fill draft.call.prompts from the body.
std::optional<Error> read_messages(const OrderedJson& body, CallDraft& draft);
std::optional<Error> read_prompt(const OrderedJson& body, CallDraft& draft);

}  // namespace skiff::openai
