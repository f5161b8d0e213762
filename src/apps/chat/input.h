// apps/chat/input.h -- joins lines into messages: a line that ends with \ continues on the next
// one, and """ alone on a line opens and closes a block.
#pragma once
#include <optional>
#include <string>

namespace skiff::apps {

struct ChatInput {
  std::string text;      // lines joined by \n, none at the end
  bool literal = false;  // more than one line: never a command, even if it begins with /
};

class ChatInputReader {
 public:
  // Takes one line without its end; it may hold \n itself if it was pasted. Returns a message once
  // it is complete.
  std::optional<ChatInput> feed(std::string_view line);
  // At the end of the input: returns the unfinished message, if there is one.
  std::optional<ChatInput> finish();
  // More lines are expected.
  bool continues() const { return begun_; }
  void clear() { *this = {}; }

 private:
  std::optional<ChatInput> take();
  std::string text_;
  bool begun_ = false, block_ = false;
};

}  // namespace skiff::apps
