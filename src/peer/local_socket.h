// peer/local_socket.h -- datagrams between processes of one machine, which can carry open files.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>

#include "base/result.h"
#include "peer/stream.h"

namespace skiff::peer {

// Its name is random and in no file system: it ends with the socket, and processes in another
// network namespace cannot reach it. Others of this machine can see it and write to it, so what
// comes is judged by its text and its sender. Never blocks. Not thread-safe.
class LocalSocket {
 public:
  static Result<LocalSocket> open();
  int fd() const { return fd_.get(); }
  const std::string& name() const { return name_; }

  struct Letter {
    std::string text;
    std::string from;  // name of the sender's socket
    uid_t user = 0;    // who the system says has sent it
    Fd file;           // not open: none was sent
  };
  static constexpr size_t kMaxText = 64;  // longer ones are cut off
  // Returns the next letter, or nothing if there is none now. Those whose sender is not known are
  // left out.
  std::optional<Letter> take() const;
  // Returns false if it cannot be delivered now. The file stays the caller's; -1: none.
  bool send(const std::string& to, const std::string& text, int file = -1) const;

 private:
  LocalSocket(Fd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}
  std::optional<Letter> take_one(bool& more) const;

  Fd fd_;
  std::string name_;
};

}  // namespace skiff::peer
