#include "route/prompt.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <string>

#include "route/json_members.h"

namespace skiff::route {
namespace {

constexpr int64_t kBytesPerToken = 4;
constexpr std::array<std::string_view, 15> kMembers{
    "model",    "cache_salt", "tools",  "instructions", "system",
    "messages", "prompt",     "input",  "contents",     "prompt_token_ids",
    "query",    "queries",    "text_1", "text_2",       "documents"};

// Names the blocks of pieces of text that follow each other.
class BlockNamer {
 public:
  BlockNamer(const PromptSettings& settings, std::vector<uint64_t>* names)
      : settings_(settings), names_(*names) {}

  void add(std::string_view piece) {
    while (!piece.empty() && names_.size() < settings_.max_blocks) {
      const size_t part = std::min(piece.size(), settings_.block_bytes - open_.size());
      if (open_.empty() && part == settings_.block_bytes) {
        name(piece.substr(0, part));
      } else {
        open_.append(piece.substr(0, part));
        if (open_.size() == settings_.block_bytes) {
          name(open_);
          open_.clear();
        }
      }
      piece.remove_prefix(part);
    }
  }

 private:
  void name(std::string_view block) {
    names_.push_back(XXH64(block.data(), block.size(), names_.empty() ? 0 : names_.back()));
  }

  const PromptSettings& settings_;
  std::vector<uint64_t>& names_;
  std::string open_;  // the beginning of a block
};

// A longer list of messages begins like a shorter one but for the bracket that ends it.
std::string_view without_end(std::string_view value) {
  if (value.ends_with(']')) value.remove_suffix(1);
  return value;
}

}  // namespace

Prompt read_prompt(std::string_view body, const PromptSettings& settings) {
  Prompt prompt;
  std::vector<JsonMember> members;
  prompt.readable = json_members(body, &members);
  int64_t bytes = 0;
  BlockNamer namer(settings, &prompt.blocks);
  for (const auto& [name, value] : members)
    prompt.disaggregated |=
        name == "disaggregate_info" || name.find('\\') != std::string_view::npos;
  for (const std::string_view wanted : kMembers)
    for (const auto& [name, value] : members) {
      if (name != wanted) continue;
      namer.add(name);
      namer.add(without_end(value));
      bytes += static_cast<int64_t>(value.size());
      break;
    }
  prompt.tokens = std::max<int64_t>(1, bytes / kBytesPerToken);
  return prompt;
}

}  // namespace skiff::route
