// apps/chat/screen.h -- what `skiff chat` prints, and how much of it: all of it on a terminal, only
// answers into a pipe.
#pragma once
#include <cstdio>
#include <string_view>

namespace skiff {

struct Look {
  bool interactive = false;  // a person reads and types: notes and figures are shown
  bool colour = false;       // escape codes may be used (a terminal, and no NO_COLOR)
};

class ChatScreen {
 public:
  // Borrows both streams.
  ChatScreen(Look look, FILE* out, FILE* err) : look_(look), out_(out), err_(err) {}

  const Look& look() const { return look_; }
  // A piece of an answer that AnswerRenderer has made safe.
  void answer(std::string_view rendered);
  // What a command has to say, or what went wrong; into a pipe it goes to `err`, so that `out` has
  // answers only. The text is made safe and ends with one \n.
  void say(std::string_view text);
  // In passing: figures and hints, dim, for people only.
  void aside(std::string_view text);
  bool failed() const;  // `out` takes no more

 private:
  void line(FILE* stream, std::string_view text, bool dim);
  const Look look_;
  FILE *out_, *err_;
};

}  // namespace skiff
