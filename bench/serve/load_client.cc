#include "serve/load_client.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/seconds.h"

namespace skiff::bench {
namespace {

using Clock = std::chrono::steady_clock;

int connect_to(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  SKIFF_CHECK(fd >= 0, "socket: {}", std::strerror(errno));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  SKIFF_CHECK(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
              "connect: {}", std::strerror(errno));
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

void send_all(int fd, const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return;
    sent += static_cast<size_t>(n);
  }
}

void unblock(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

// One connection that reads stream after stream. An event ends with an empty line, which occurs
// nowhere else in the bytes; the terminating chunk ends a reply.
struct Stream {
  int fd = -1;
  int rounds_left = 0;
  char tail[5] = {};  // the last bytes of the read before
  bool checked = false;
  std::string last;  // the last bytes of the reply, at most kLast: its usage is among them
  static constexpr size_t kLast = 1024;

  void keep(const char* begin, const char* end) {
    last.append(end - std::min<ptrdiff_t>(end - begin, kLast), end);
    if (last.size() > kLast) last.erase(0, last.size() - kLast);
  }
  // The tokens that the usage of the reply names; 0 where it has none.
  uint64_t tokens() const {
    constexpr std::string_view kKey = "\"completion_tokens\":";
    const size_t at = last.rfind(kKey);
    return at == std::string::npos ? 0 : std::strtoull(&last[at + kKey.size()], nullptr, 10);
  }
};

struct Health {
  int fd = -1;
  Clock::time_point sent{};
  bool waiting = false;
  std::vector<double> seconds;
};

class Run {
 public:
  explicit Run(const StreamLoad& load)
      : load_(load), request_(post(load.body, /*keep_alive=*/true)), buffer_(256u << 10) {
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
  }
  ~Run() {
    for (Stream& stream : streams_) close(stream.fd);
    if (health_.fd >= 0) close(health_.fd);
    close(epoll_);
  }

  StreamReport run() {
    for (int i = 0; i < load_.connections; ++i) open_stream();
    for (Stream& stream : streams_) watch(stream.fd, &stream);
    if (load_.probe_health) {
      health_.fd = connect_to(load_.port);
      watch(health_.fd, &health_);
    }
    const auto start = Clock::now();
    const double cpu = cpu_seconds();
    for (Stream& stream : streams_) send_all(stream.fd, request_);
    while (open_ > 0) turn();
    report_.seconds = seconds_since(start);
    report_.client_cpu = cpu_seconds() - cpu;
    summarize();
    return report_;
  }

 private:
  void open_stream() {
    Stream stream;
    stream.fd = connect_to(load_.port);
    stream.rounds_left = load_.rounds;
    streams_.push_back(stream);
    ++open_;
  }

  void watch(int fd, void* what) {
    unblock(fd);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = what;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  }

  void turn() {
    epoll_event events[128];
    const int count = epoll_wait(epoll_, events, 128, 2);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.ptr == &health_)
        read_health();
      else
        read_stream(*static_cast<Stream*>(events[i].data.ptr));
    }
    if (load_.probe_health && !health_.waiting &&
        Clock::now() - health_.sent > std::chrono::milliseconds(2)) {
      health_.waiting = true;
      health_.sent = Clock::now();
      send_all(health_.fd, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
  }

  void read_health() {
    const ssize_t n = recv(health_.fd, buffer_.data(), buffer_.size(), 0);
    if (n <= 0) {
      ++report_.failures;
      epoll_ctl(epoll_, EPOLL_CTL_DEL, health_.fd, nullptr);
      return;
    }
    health_.waiting = false;
    health_.seconds.push_back(seconds_since(health_.sent));
  }

  void read_stream(Stream& stream) {
    constexpr size_t kTail = sizeof stream.tail;
    std::memcpy(buffer_.data(), stream.tail, kTail);
    const ssize_t n = recv(stream.fd, buffer_.data() + kTail, buffer_.size() - kTail, 0);
    if (n <= 0) return finish(stream, /*failed=*/true);
    const char* begin = buffer_.data() + kTail;
    const char* end = begin + n;
    report_.bytes += static_cast<uint64_t>(n);
    if (!std::exchange(stream.checked, true) && std::memcmp(begin, "HTTP/1.1 200", 12) != 0)
      return finish(stream, /*failed=*/true);
    for (const char* p = begin; (p = static_cast<const char*>(std::memchr(p, '\n', end - p))); ++p)
      report_.events += p[-1] == '\n';
    std::memcpy(stream.tail, end - kTail, kTail);
    stream.keep(begin, end);
    if (std::memcmp(stream.tail, "0\r\n\r\n", kTail) == 0) next(stream);
  }

  void next(Stream& stream) {
    report_.tokens += stream.tokens();
    if (--stream.rounds_left == 0) return finish(stream, /*failed=*/false);
    stream.checked = false;
    send_all(stream.fd, request_);
  }

  void finish(Stream& stream, bool failed) {
    report_.failures += failed;
    epoll_ctl(epoll_, EPOLL_CTL_DEL, stream.fd, nullptr);
    --open_;
  }

  void summarize() {
    auto& all = health_.seconds;
    if (all.empty()) return;
    std::sort(all.begin(), all.end());
    report_.health_count = all.size();
    report_.health_p50 = all[all.size() / 2];
    report_.health_p99 = all[all.size() * 99 / 100];
    report_.health_max = all.back();
  }

  const StreamLoad& load_;
  const std::string request_;
  std::vector<char> buffer_;
  std::vector<Stream> streams_;
  Health health_;
  StreamReport report_;
  int epoll_ = -1, open_ = 0;
};

}  // namespace

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::string post(const std::string& body, bool keep_alive) {
  return fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n{}\r\n{}",
      body.size(), keep_alive ? "" : "Connection: close\r\n", body);
}

StreamReport run_streams(const StreamLoad& load) { return Run(load).run(); }

HeldStreams::HeldStreams(uint16_t port, int count, const std::string& body) {
  const std::string request = post(body, /*keep_alive=*/true);
  for (int i = 0; i < count; ++i) {
    sockets_.push_back(connect_to(port));
    send_all(sockets_.back(), request);
    unblock(sockets_.back());
  }
}

HeldStreams::~HeldStreams() {
  for (int fd : sockets_) close(fd);
}

int HeldStreams::opened() {
  int count = 0;
  for (int fd : sockets_) {
    char head[12];
    count += recv(fd, head, sizeof head, MSG_PEEK) == sizeof head &&
             std::memcmp(head, "HTTP/1.1 200", sizeof head) == 0;
  }
  return count;
}

std::string exchange(uint16_t port, const std::string& request) {
  const int fd = connect_to(port);
  send_all(fd, request);
  std::string reply;
  char buffer[4096];
  for (ssize_t n; (n = recv(fd, buffer, sizeof buffer, 0)) > 0;)
    reply.append(buffer, static_cast<size_t>(n));
  close(fd);
  return reply;
}

std::string unchunked(const std::string& reply) {
  std::string body;
  size_t at = reply.find("\r\n\r\n");
  SKIFF_CHECK(at != std::string::npos, "no HTTP header in {} bytes", reply.size());
  for (at += 4;;) {
    const size_t line = reply.find("\r\n", at);
    SKIFF_CHECK(line != std::string::npos, "a chunk is cut off");
    const size_t size = std::stoul(reply.substr(at, line - at), nullptr, 16);
    if (size == 0) return body;
    body.append(reply, line + 2, size);
    at = line + 2 + size + 2;
  }
}

}  // namespace skiff::bench
