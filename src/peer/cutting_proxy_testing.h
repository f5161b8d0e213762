// peer/cutting_proxy_testing.h -- for tests: a proxy on loopback that harms what passes from a
// block server to its client, after a number of bytes.
#pragma once
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "base/check.h"
#include "peer/stream.h"

namespace skiff::peer {

class CuttingProxy {
 public:
  enum class Harm { kNone, kCut, kStall, kFlip };  // ends both sides; goes silent; changes a byte
  // One connection after another is served; `after` counts the bytes of each from the start.
  CuttingProxy(int target, Harm harm, size_t after)
      : target_(target), harm_(harm), after_(after), listener_(listen()) {
    thread_ = std::thread([this] { run(); });
  }
  ~CuttingProxy() {
    stop_ = true;
    thread_.join();
  }
  int port() const { return port_of(listener_); }
  bool harmed() const { return harmed_; }

 private:
  static Fd listen() {
    auto fd = listen_on({"127.0.0.1", 0});
    SKIFF_CHECK(static_cast<bool>(fd));
    return std::move(*fd);
  }
  void run() {
    while (!stop_) {
      pollfd one{listener_.get(), POLLIN, 0};
      poll(&one, 1, 20);
      if (Fd client = accept_from(listener_); client.open()) carry(std::move(client));
    }
  }
  void carry(Fd fd) {
    auto other = connect_to({"127.0.0.1", target_});
    if (!other) return;
    Stream client(std::move(fd)), server(std::move(*other));
    size_t passed = 0;
    bool stalled = false;
    while (!stop_) {
      pollfd both[] = {{client.fd(), POLLIN, 0}, {server.fd(), POLLIN, 0}};
      poll(both, stalled ? 1 : 2, 20);
      if (both[0].revents != 0 && !client.receive(4096)) return;
      if (!stalled && both[1].revents != 0 && !server.receive(1000)) return;
      pass(client, server, client.received().size());
      size_t n = server.received().size();
      const bool due = harm_ != Harm::kNone && !stalled && passed + n > after_;
      if (due && harm_ != Harm::kFlip) n = after_ - passed;
      const size_t begin = client.out().size();
      client.out() += server.received().substr(0, stalled ? 0 : n);
      if (due && harm_ == Harm::kFlip && !harmed_) client.out()[begin + (after_ - passed)] ^= 1;
      if (!stalled) server.consume(n), passed += n;
      if (!client.send()) return;
      harmed_ = harmed_ || due;
      if (due && harm_ == Harm::kCut) return;
      if (due && harm_ == Harm::kStall) stalled = true;
    }
  }
  static void pass(Stream& from, Stream& to, size_t n) {
    to.out() += from.received().substr(0, n);
    from.consume(n);
    to.send();
  }

  const int target_;
  const Harm harm_;
  const size_t after_;
  std::atomic<bool> stop_ = false, harmed_ = false;
  const Fd listener_;
  std::thread thread_;
};

}  // namespace skiff::peer
