#include "apps/chat/screen.h"

#include <string>

#include "apps/chat/renderer.h"

namespace skiff::apps {

void ChatScreen::answer(std::string_view rendered) {
  std::fwrite(rendered.data(), 1, rendered.size(), out_);
  std::fflush(out_);
}

void ChatScreen::line(FILE* stream, std::string_view text, bool dim) {
  std::string safe = terminal_safe(text);
  const bool ends = safe.ends_with('\n');
  if (ends) safe.pop_back();
  if (dim && look_.colour) safe = std::string(kDim) + safe + std::string(kPlain);
  safe += '\n';
  std::fwrite(safe.data(), 1, safe.size(), stream);
  std::fflush(stream);
}

void ChatScreen::say(std::string_view text) { line(look_.interactive ? out_ : err_, text, false); }

void ChatScreen::aside(std::string_view text) {
  if (look_.interactive) line(out_, text, true);
}

bool ChatScreen::failed() const { return std::ferror(out_) != 0; }

}  // namespace skiff::apps
