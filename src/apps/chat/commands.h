// apps/chat/commands.h -- the commands of `skiff chat`, which begin with /.
#pragma once
#include <string>

#include "base/result.h"

namespace skiff::apps {

enum class ChatVerb { kHelp, kReset, kUndo, kRegen, kSystem, kSet, kSave, kLoad, kStats, kExit };

struct ChatCommand {
  ChatVerb verb;
  std::string argument;  // what follows the word, without spaces at either end
};

// A line is a command if it begins with one slash; "//text" says "/text" to the model.
bool is_chat_command(std::string_view line);

// kInvalid for an unknown word (it names the nearest one) and for a missing or surplus argument.
Result<ChatCommand> parse_chat_command(std::string_view line);

// Returns one line per command, then a note on writing several lines.
std::string chat_help();

// Returns the rest of the command if the word at the start of `line` begins exactly one command;
// else an empty text.
std::string chat_completion(std::string_view line);

}  // namespace skiff::apps
