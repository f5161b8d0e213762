// serve/queue/redis_testing.h -- a Redis server of a test's own, on loopback, where one is
// installed.
#pragma once
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

namespace skiff::queue::testing {

class RedisServer {
 public:
  RedisServer() { start(); }
  ~RedisServer() { kill(); }
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  bool runs() const { return pid_ > 0; }
  int port() const { return port_; }
  void start() {
    if (port_ == 0) port_ = free_port();
    std::string port = std::to_string(port_);
    const std::array<const char*, 12> words{
        "redis-server", "--port", port.c_str(),  "--bind", "127.0.0.1", "--save", "",
        "--appendonly", "no",     "--daemonize", "no",     nullptr};
    pid_ = fork();
    if (pid_ == 0) {  // ends with the test, however that ends, and does not hold its output open
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int nothing = open("/dev/null", O_RDWR);
      for (int fd = 0; fd < 3; ++fd) dup2(nothing, fd);
      execvp("redis-server", const_cast<char**>(words.data()));
      _exit(1);
    }
    for (int i = 0; i < 1000 && !listens() && waitpid(pid_, nullptr, WNOHANG) == 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (!listens()) kill();
  }
  void kill() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    pid_ = -1;
  }

 private:
  static sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  bool listens() const {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = loopback(port_);
    const int done = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    close(fd);
    return done == 0;
  }
  static int free_port() {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                       getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
    close(fd);
    if (!bound) throw std::runtime_error("no port of loopback is free");
    return ntohs(address.sin_port);
  }
  pid_t pid_ = -1;
  int port_ = 0;
};

}  // namespace skiff::queue::testing
