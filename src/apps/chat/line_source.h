// apps/chat/line_source.h -- the source of a person's lines: an editor or a file descriptor.
#pragma once
#include <cstdio>
#include <string>
#include <string_view>

#include "apps/chat/signals.h"

namespace skiff::apps {

enum class LineEnd {
  kLine,       // `text` holds a line
  kInterrupt,  // Ctrl-C: the line typed so far is discarded
  kClosed,     // the input has ended, or Ctrl-D
  kLeave,      // SIGTERM or SIGHUP
};

struct LineRead {
  LineEnd end = LineEnd::kClosed;
  std::string text;  // with kLine: valid UTF-8 from an editor, any bytes from a pipe; no \n at the
                     // end, but pasted text may have some inside
};

class LineSource {
 public:
  virtual ~LineSource() = default;
  virtual LineRead read(std::string_view prompt) = 0;
  // Adds `entry` to the history that the arrow keys recall.
  virtual void remember(const std::string& entry) = 0;
};

// Lines of a file descriptor, without editing or history. At the end of the input a last line
// without \n counts.
class PlainLines : public LineSource {
 public:
  static constexpr size_t kMaxLineBytes =
      16 << 20;  // a longer line is cut, and its rest becomes the next line

  // Prompts are written to `prompts`, if it is not null.
  PlainLines(int fd, ChatSignals& signals, FILE* prompts = nullptr)
      : fd_(fd), signals_(signals), prompts_(prompts) {}
  LineRead read(std::string_view prompt) override;
  void remember(const std::string&) override {}

 private:
  const int fd_;
  ChatSignals& signals_;
  FILE* const prompts_;
  std::string buffer_;
  size_t searched_ = 0;  // bytes of buffer_ known to hold no \n
  bool ended_ = false;
};

}  // namespace skiff::apps
