// fetch/server_testing.h -- a server on loopback that answers each connection as a test says.
#pragma once
#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "base/check.h"
#include "fetch/url.h"

namespace skiff::fetch {

// One client's connection, whose request has been read.
class Peer {
 public:
  explicit Peer(int socket) : socket_(socket) {}
  // False once the client has left.
  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

 private:
  const int socket_;
};

// Serves one client after the other, until it is destroyed; `answer` must return by then.
class TestServer {
 public:
  explicit TestServer(std::function<void(const Peer&)> answer) : answer_(std::move(answer)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    SKIFF_CHECK(bind(listener_, any, size) == 0 && listen(listener_, 8) == 0, "no port is left");
    getsockname(listener_, any, &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~TestServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  Url url(const std::string& host = "127.0.0.1") const {
    return *parse_url(fmt::format("http://{}:{}/x", host, port_));
  }

 private:
  void serve() {
    for (int socket; (socket = accept(listener_, nullptr, nullptr)) >= 0; close(socket)) {
      std::string request;
      std::array<char, 4096> bytes;
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t got = recv(socket, bytes.data(), bytes.size(), 0);
        if (got <= 0) break;
        request.append(bytes.data(), static_cast<size_t>(got));
      }
      answer_(Peer(socket));
    }
  }

  const std::function<void(const Peer&)> answer_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::thread thread_;
};

}  // namespace skiff::fetch
