// apps/chat/line_editor.h -- lines of a person at a terminal: editing keys, history, completion and
// pasted text, by libedit.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/chat/line_source.h"

namespace skiff {

// What the Tab key adds to the text before the cursor; empty for nothing.
using Completion = std::function<std::string(std::string_view)>;

// On stdin and stdout, which must be terminals. ~/.editrc is heeded. Text that the terminal pastes
// (bracketed paste) stays one line, with its \n inside. Ctrl-Z suspends.
std::unique_ptr<LineSource> make_line_editor(ChatSignals& signals,
                                             const std::vector<std::string>& history,
                                             Completion completion);

}  // namespace skiff
