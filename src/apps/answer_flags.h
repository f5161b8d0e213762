// apps/answer_flags.h -- the flags that say how a model writes reasoning and tool calls.
#pragma once
#include "apps/args.h"
#include "text/answer/answer_format.h"
#include "text/chat/chat_template.h"

namespace skiff::apps {

// `chat_template` may be null; "auto" then finds nothing. Throws LoadError for an unknown parser.
answer::AnswerFormats answer_formats(const Args& args, const text::ChatTemplate* chat_template);

}  // namespace skiff::apps
