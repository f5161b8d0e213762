// apps/chat/line_editor.h -- reads lines from a person at a terminal, with editing keys, history,
// completion and pasted text, through libedit.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/chat/line_source.h"

namespace skiff::apps {

// Returns what the Tab key adds to the text before the cursor; empty for nothing.
using Completion = std::function<std::string(std::string_view)>;

// Uses stdin and stdout, which must be terminals. It reads ~/.editrc. Text that the terminal pastes
// (bracketed paste) stays one line, with its \n inside. Ctrl-Z suspends the process.
std::unique_ptr<LineSource> make_line_editor(ChatSignals& signals,
                                             const std::vector<std::string>& history,
                                             Completion completion);

}  // namespace skiff::apps
