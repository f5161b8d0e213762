// peer/guest_testing.h -- for tests: the other side of a connection to a block server, which says
// what a test wants.
#pragma once
#include <poll.h>

#include <optional>
#include <string>
#include <string_view>

#include "peer/stream.h"
#include "peer/wire.h"

namespace skiff::peer {

class Guest {
 public:
  explicit Guest(int port) : stream_(std::move(*connect_to({"127.0.0.1", port}))) {}
  void say(const Message& message) {
    write(message, stream_.out());
    say_bytes("");
  }
  void say_bytes(std::string_view bytes) {
    stream_.out() += bytes;
    while (stream_.send() && stream_.unsent() > 0) wait(POLLOUT);
  }
  // The next message; nothing once the connection has ended. What follows a block is taken away.
  std::optional<Message> hear() {
    for (;;) {
      std::string_view in = stream_.received();
      const size_t before = in.size();
      const auto message = take(in, kMaxFrame);
      if (!message) return std::nullopt;
      if (*message) {
        stream_.consume(before - in.size());
        return *message;
      }
      if (!more()) return std::nullopt;
    }
  }
  std::string bytes(size_t n) {
    while (stream_.received().size() < n && more()) continue;
    const std::string text(stream_.received().substr(0, n));
    stream_.consume(text.size());
    return text;
  }
  void log_in(const std::string& key, const Facts& facts) {
    const auto hello = hear();
    of_server_ = std::get<Hello>(*hello).nonce;
    say(Login{own_, proof(key, "decode", of_server_, own_), facts});
  }
  // What the letters about memory say on this connection.
  std::string memory_proof_of(const std::string& key, const std::string& what) const {
    return memory_proof(key, what, of_server_, own_);
  }

 private:
  bool more() {
    wait(POLLIN);
    return stream_.receive(4096);
  }
  void wait(short events) {
    pollfd one{stream_.fd(), events, 0};
    poll(&one, 1, 10000);
  }
  Stream stream_;
  Digest own_ = random_nonce(), of_server_{};
};

}  // namespace skiff::peer
