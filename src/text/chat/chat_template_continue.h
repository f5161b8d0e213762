// text/chat/chat_template_continue.h -- cuts a rendered conversation inside its last message.
#pragma once
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace skiff::text {

// Returns `rendered` up to the end of the last message's text (its last text part, if the content
// is a list). White space around the text counts only where the template kept it. Returns kInvalid
// if the last message has no text or the template changed it.
Result<std::string> cut_in_final_message(std::string rendered, const OrderedJson& messages);

}  // namespace skiff::text
