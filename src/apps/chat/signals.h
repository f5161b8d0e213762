// apps/chat/signals.h -- signals of a terminal program as something that poll() can wait for.
#pragma once

namespace skiff {

// While it lives SIGINT, SIGTERM, SIGHUP, SIGTSTP and SIGWINCH no longer act on the process but are
// queued; SIGPIPE is ignored. One at a time in a process; used by one thread.
class ChatSignals {
 public:
  // `terminal`: false leaves SIGTSTP and SIGWINCH alone. Throws LoadError.
  explicit ChatSignals(bool terminal);
  ~ChatSignals();
  ChatSignals(const ChatSignals&) = delete;
  ChatSignals& operator=(const ChatSignals&) = delete;

  int fd() const { return read_end_; }  // readable while take() has something
  int take();                           // the next signal's number; 0 if there is none

 private:
  int read_end_ = -1;
};

// Waits until `fd` can be read or a signal is queued. Which of the two may be asked of the caller's
// own non-blocking reads; signals go first.
enum class Woken { kSignal, kReadable };
Woken wait_for_either(const ChatSignals& signals, int fd);

}  // namespace skiff
