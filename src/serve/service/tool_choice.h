// serve/service/tool_choice.h -- which of a request's tools the model may call, and whether it
// must, whatever protocol says so.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "serve/service/service.h"

namespace skiff::service {

struct ToolChoice {
  enum class Mode {
    kAuto,      // the model decides
    kNone,      // it is shown no tools, and what looks like a call is content
    kRequired,  // it must call one at least
  };
  Mode mode = Mode::kAuto;
  std::vector<std::string> only;  // the functions that it may call; empty: all
};

// Leaves in conversation.tools, which are in OpenAI's form, what the model may call, and sets what
// the request needs for it. Error::field is "tools" or "tool_choice".
std::optional<Error> apply_tool_choice(const ToolChoice& choice, text::Conversation& conversation,
                                       Request& request);

}  // namespace skiff::service
