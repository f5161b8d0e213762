// apps/chat/renderer.h -- turns a model's text, piece by piece, into bytes that are safe to print
// to a terminal.
#pragma once
#include <string>
#include <string_view>

namespace skiff::apps {

constexpr std::string_view kDim = "\x1b[2m", kPlain = "\x1b[0m";

// Returns text that cannot drive a terminal: control characters other than \n and \t (C0, DEL, C1)
// become visible stand-ins, invalid UTF-8 becomes U+FFFD, and \r is dropped.
std::string terminal_safe(std::string_view text);

// Renders one answer. A piece holds whole characters but may be cut anywhere else, also inside a
// tag.
class AnswerRenderer {
 public:
  // `styled`: thinking, that is what stands between <think> at the very start and </think>, is
  // printed dim and without the two tags. Otherwise all text is printed alike.
  // `thinking`: the prompt has already opened it.
  AnswerRenderer(bool styled, bool thinking);

  std::string push(std::string_view piece);
  // Returns the text that was held back as the possible beginning of a tag, and ends the style.
  std::string finish();

 private:
  enum class Where { kStart, kThinking, kAnswer };
  std::string styled();
  Where where_;
  bool styled_, dim_ = false;
  std::string held_;
};

}  // namespace skiff::apps
