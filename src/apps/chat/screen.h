// apps/chat/screen.h -- prints the output of `skiff chat`: everything on a terminal, only answers
// into a pipe.
#pragma once
#include <cstdio>
#include <string_view>

namespace skiff::apps {

struct Look {
  bool interactive = false;  // a person reads and types: notes and figures are shown
  bool colour = false;       // escape codes may be used (a terminal, and no NO_COLOR)
};

class ChatScreen {
 public:
  // Borrows both streams.
  ChatScreen(Look look, FILE* out, FILE* err) : look_(look), out_(out), err_(err) {}

  const Look& look() const { return look_; }
  // Prints a piece of an answer that AnswerRenderer has made safe.
  void answer(std::string_view rendered);
  // Prints the result of a command or an error. If the output is a pipe, it goes to `err`, so that
  // `out` has answers only. The text is made safe and ends with one \n.
  void say(std::string_view text);
  // Prints figures and hints, dimmed, for people only.
  void aside(std::string_view text);
  bool failed() const;  // true once writing to `out` has failed

 private:
  void line(FILE* stream, std::string_view text, bool dim);
  const Look look_;
  FILE *out_, *err_;
};

}  // namespace skiff::apps
