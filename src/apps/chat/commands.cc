#include "apps/chat/commands.h"

#include <fmt/format.h>

#include <vector>

#include "base/nearest.h"

namespace skiff::apps {
namespace {

enum class Takes { kNothing, kMaybe, kSomething };

struct Row {
  std::string_view word;
  ChatVerb verb;
  Takes takes;
  std::string_view argument, help;  // an empty help marks a synonym of the row above
};

constexpr Row kRows[] = {
    {"/help", ChatVerb::kHelp, Takes::kNothing, "", "this list"},
    {"/reset", ChatVerb::kReset, Takes::kNothing, "", "forget the conversation"},
    {"/undo", ChatVerb::kUndo, Takes::kNothing, "", "forget the last question and its answer"},
    {"/regen", ChatVerb::kRegen, Takes::kNothing, "", "answer the last question again"},
    {"/system", ChatVerb::kSystem, Takes::kMaybe, "[TEXT]", "set the system message; - for none"},
    {"/set", ChatVerb::kSet, Takes::kMaybe, "[NAME [VALUE]]",
     "show or change how answers are drawn"},
    {"/save", ChatVerb::kSave, Takes::kSomething, "FILE",
     "write the conversation: .md to read, else JSON"},
    {"/load", ChatVerb::kLoad, Takes::kSomething, "FILE", "go on with a saved one"},
    {"/stats", ChatVerb::kStats, Takes::kNothing, "", "tokens, context and speed so far"},
    {"/exit", ChatVerb::kExit, Takes::kNothing, "", "leave (so does Ctrl-D)"},
    {"/quit", ChatVerb::kExit, Takes::kNothing, "", ""},
    {"/bye", ChatVerb::kExit, Takes::kNothing, "", ""},
};

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

Error unknown(std::string_view word) {
  std::vector<std::string_view> words;
  for (const Row& row : kRows) words.push_back(row.word);
  const std::string_view best = nearest(word, words);
  return Error{Code::kInvalid,
               fmt::format("unknown command {}{} (/help lists them; //text says /text)", word,
                           best.empty() ? "" : fmt::format("; did you mean {}?", best))};
}

}  // namespace

bool is_chat_command(std::string_view line) {
  return line.starts_with("/") && !line.starts_with("//");
}

Result<ChatCommand> parse_chat_command(std::string_view line) {
  const std::string_view word = line.substr(0, line.find_first_of(" \t"));
  const std::string_view argument = trimmed(line.substr(word.size()));
  for (const Row& row : kRows) {
    if (row.word != word) continue;
    if (row.takes == Takes::kNothing && !argument.empty())
      return Error{Code::kInvalid, fmt::format("{} takes nothing, not \"{}\"", word, argument)};
    if (row.takes == Takes::kSomething && argument.empty())
      return Error{Code::kInvalid, fmt::format("{} needs {}", word, row.argument)};
    return ChatCommand{row.verb, std::string(argument)};
  }
  return unknown(word);
}

std::string chat_help() {
  std::string out;
  for (const Row& row : kRows)
    if (!row.help.empty())
      out += fmt::format("  {:<22} {}\n", fmt::format("{} {}", row.word, row.argument), row.help);
  return out +
         "Several lines: end a line with \\, or put \"\"\" on a line of its own before and after.\n"
         "Ctrl-C stops an answer, or clears the line; twice, or Ctrl-D, leaves.\n";
}

std::string chat_completion(std::string_view line) {
  std::string_view only;
  for (const Row& row : kRows) {
    if (line.size() < 2 || !row.word.starts_with(line)) continue;
    if (!only.empty()) return "";
    only = row.word;
  }
  return only.empty() ? "" : std::string(only.substr(line.size())) + " ";
}

}  // namespace skiff::apps
