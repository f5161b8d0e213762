#include "apps/chat/input.h"

#include <utility>

namespace skiff::apps {
namespace {

constexpr std::string_view kFence = "\"\"\"";

bool is_fence(std::string_view line) {
  const size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return false;
  return line.substr(begin, line.find_last_not_of(" \t") - begin + 1) == kFence;
}

}  // namespace

std::optional<ChatInput> ChatInputReader::take() {
  ChatInput input{.text = std::exchange(text_, {}), .literal = begun_};
  if (input.text.ends_with('\n')) input.text.pop_back();
  if (input.text.find('\n') != std::string::npos) input.literal = true;
  clear();
  return input;
}

std::optional<ChatInput> ChatInputReader::feed(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (block_ ? is_fence(line) : !begun_ && is_fence(line)) {
    if (block_) return take();
    begun_ = block_ = true;
    return std::nullopt;
  }
  const bool goes_on = block_ || line.ends_with('\\');
  if (goes_on && !block_) line.remove_suffix(1);
  text_ += line;
  if (!goes_on) return take();
  text_ += '\n';
  begun_ = true;
  return std::nullopt;
}

std::optional<ChatInput> ChatInputReader::finish() {
  if (!begun_) return std::nullopt;
  return take();
}

}  // namespace skiff::apps
