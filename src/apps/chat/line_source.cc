#include "apps/chat/line_source.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

namespace skiff::apps {

LineRead PlainLines::read(std::string_view prompt) {
  if (prompts_) {
    std::fwrite(prompt.data(), 1, prompt.size(), prompts_);
    std::fflush(prompts_);
  }
  for (;;) {
    const size_t newline = buffer_.find('\n', searched_);
    const size_t length = std::min(newline, kMaxLineBytes);
    if (newline != std::string::npos || buffer_.size() >= kMaxLineBytes) {
      LineRead line{LineEnd::kLine, buffer_.substr(0, length)};
      buffer_.erase(0, length + (length == newline));
      searched_ = 0;
      return line;
    }
    searched_ = buffer_.size();
    if (ended_ && buffer_.empty()) return {LineEnd::kClosed, ""};
    if (ended_) return {LineEnd::kLine, std::exchange(buffer_, {})};
    if (wait_for_either(signals_, fd_) == Woken::kSignal) {
      const int signal = signals_.take();
      if (signal == SIGINT) return {LineEnd::kInterrupt, ""};
      if (signal == SIGTERM || signal == SIGHUP) return {LineEnd::kLeave, ""};
      continue;
    }
    char bytes[4096];
    const ssize_t got = ::read(fd_, bytes, sizeof bytes);
    if (got > 0) buffer_.append(bytes, static_cast<size_t>(got));
    ended_ = got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN);
  }
}

}  // namespace skiff::apps
