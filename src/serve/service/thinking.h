// serve/service/thinking.h -- whether a model is to think before it answers, under the names that
// chat templates have for it.
#pragma once
#include <optional>

#include "base/json.h"
#include "base/result.h"
#include "text/chat/chat_template.h"

namespace skiff::service {

// Sets the variables of a chat template that switch thinking on or off: enable_thinking (Qwen,
// ERNIE, GLM), thinking (DeepSeek, Granite) and options.thinking_mode (ERNIE-VL). What `kwargs`
// says under one of these names counts under all of them; `wanted` counts if it says nothing.
void set_thinking(OrderedJson& kwargs, std::optional<bool> wanted);

// What the variables say; nothing if they say nothing.
std::optional<bool> thinking_of(const OrderedJson& kwargs);
// Returns whether prompts of this template ask for no reasoning where nobody has said anything:
// they are then those of a request that switches thinking off.
bool is_thinking_off_by_default(const text::ChatTemplate& chat_template);

// The value of OpenAI's reasoning effort: "none" switches thinking off, the other levels on.
// Nothing for a text that is no level.
std::optional<bool> thinking_of_effort(const OrderedJson& effort);

}  // namespace skiff::service
