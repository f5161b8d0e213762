// apps/chat/commands.h -- the words that begin with / in `skiff chat`.
#pragma once
#include <string>

#include "base/result.h"

namespace skiff {

enum class ChatVerb { kHelp, kReset, kUndo, kRegen, kSystem, kSet, kSave, kLoad, kStats, kExit };

struct ChatCommand {
  ChatVerb verb;
  std::string argument;  // what follows the word, without spaces at either end
};

// A line is a command if it begins with one slash; "//text" says "/text" to the model.
bool is_chat_command(std::string_view line);

// kInvalid for an unknown word (it names the nearest one) and for a missing or surplus argument.
Result<ChatCommand> parse_chat_command(std::string_view line);

// One line per command, then how to write several lines.
std::string chat_help();

// What completes the word at the start of `line` to a command that no other begins like; empty if
// nothing does.
std::string chat_completion(std::string_view line);

}  // namespace skiff
