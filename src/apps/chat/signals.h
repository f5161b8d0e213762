// apps/chat/signals.h -- lets poll() wait for the signals of a terminal program.
#pragma once

namespace skiff::apps {

// While it lives SIGINT, SIGTERM, SIGHUP, SIGTSTP and SIGWINCH no longer act on the process but are
// queued; SIGPIPE is ignored. Only one may exist in a process; one thread uses it.
class ChatSignals {
 public:
  // `terminal`: false leaves SIGTSTP and SIGWINCH alone. Throws LoadError.
  explicit ChatSignals(bool terminal);
  ~ChatSignals();
  ChatSignals(const ChatSignals&) = delete;
  ChatSignals& operator=(const ChatSignals&) = delete;

  int fd() const { return read_end_; }  // readable while take() has something
  int take();                           // returns the next signal's number; 0 if there is none

 private:
  int read_end_ = -1;
};

// Waits until `fd` can be read or a signal is queued. The caller finds out which by reading without
// blocking; it should look at signals first.
enum class Woken { kSignal, kReadable };
Woken wait_for_either(const ChatSignals& signals, int fd);

}  // namespace skiff::apps
