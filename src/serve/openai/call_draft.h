// serve/openai/call_draft.h -- an OpenAiCall while its fields are read. Fields come in any order,
// so what only makes sense together is kept here until all of them have been read.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "serve/openai/params.h"
#include "serve/service/tool_choice.h"
#include "text/chat/chat_template.h"

namespace skiff::openai {

struct CallDraft {
  OpenAiCall call;

  // The prompt of a chat, less its messages.
  text::Conversation conversation;
  OrderedJson documents;
  std::string reasoning_effort;
  std::optional<bool> add_generation_prompt;
  service::ToolChoice tool_choice;
  std::optional<bool> thinking;
  bool raw_chat = false;  // disable_chat_template
  std::vector<std::vector<Token>> prompt_token_ids;

  bool no_whitespace = false;      // a constraint's JSON has no whitespace
  std::string whitespace_pattern;  // a constraint's JSON has whitespace of this form

  int top_logprobs = kNoLogprobs;
  bool has_stream_options = false;
  bool has_max_completion_tokens = false;
};

}  // namespace skiff::openai
