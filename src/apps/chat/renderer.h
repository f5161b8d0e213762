// apps/chat/renderer.h -- a model's text on its way to a terminal: pieces in, bytes to print out.
#pragma once
#include <string>
#include <string_view>

namespace skiff {

constexpr std::string_view kDim = "\x1b[2m", kPlain = "\x1b[0m";

// Text that cannot drive a terminal: control characters other than \n and \t (C0, DEL, C1) become
// visible stand-ins, invalid UTF-8 becomes U+FFFD, \r is dropped. What is safe stays as it is.
std::string terminal_safe(std::string_view text);

// For one answer. Pieces are whole characters, cut anywhere else.
class AnswerRenderer {
 public:
  // `styled`: thinking, that is what stands between <think> at the very start and </think>, is
  // printed dim and without the two tags. Otherwise all text is printed alike.
  // `thinking`: the prompt has already opened it.
  AnswerRenderer(bool styled, bool thinking);

  std::string push(std::string_view piece);
  // What was held back because it could have begun a tag, and the end of the style.
  std::string finish();

 private:
  enum class Where { kStart, kThinking, kAnswer };
  std::string styled();
  Where where_;
  bool styled_, dim_ = false;
  std::string held_;
};

}  // namespace skiff
