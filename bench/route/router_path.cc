// The router's own part of a request: a null backend, the router and a client, each a process of
// its own. The router is held to one core. Prints requests a second and latencies, direct beside
// routed, for whole answers. Checks every answer.
//   bench_router_path [REQUESTS] [CONNECTIONS]
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "route/router.h"
#include "serve/http/server.h"

namespace skiff::bench {
namespace {

using Clock = std::chrono::steady_clock;
const std::string kAnswer = R"({"choices":[{"message":{"content":"Paris"}}]})";

// Runs `serve` in a child process, which tells its port, until this process ends.
uint16_t in_child(int core, const std::function<uint16_t()>& serve) {
  int ends[2];
  SKIFF_CHECK(pipe(ends) == 0);
  if (fork() == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    if (core >= 0) sched_setaffinity(0, sizeof cores, &cores);
    const uint16_t port = serve();
    SKIFF_CHECK(write(ends[1], &port, sizeof port) == sizeof port);
    for (;;) pause();
  }
  uint16_t port = 0;
  SKIFF_CHECK(read(ends[0], &port, sizeof port) == sizeof port);
  return port;
}

http::HttpConfig local() {
  http::HttpConfig config;
  config.host = "127.0.0.1";
  config.port = 0;
  config.io_threads = 1;
  config.worker_threads = 1;
  return config;
}

uint16_t serve_nothing() {
  auto* server = new http::HttpServer(
      local(), {.handler =
                    [](const http::HttpRequest&, const std::shared_ptr<http::HttpReply>& reply) {
                      reply->send({.status = 200, .body = kAnswer});
                    },
                .failure =
                    [](int status, const std::string& why) {
                      return http::HttpResponse{.status = status, .body = why};
                    },
                .lane = [](const http::HttpRequest&) { return http::HttpLane::kIo; }});
  server->start();
  return server->port();
}

uint16_t route_to(uint16_t backend) {
  route::RouterConfig config;
  config.http = local();
  config.access_log = false;
  config.backends = {*route::parse_backend_url(fmt::format("127.0.0.1:{}", backend))};
  auto* router = new route::Router(std::move(config));
  router->start();
  return router->port();
}

int connect_to(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  SKIFF_CHECK(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

// One request after another on one connection; appends the seconds that each took.
void ask(uint16_t port, int count, const std::string& request, std::vector<double>* seconds) {
  const int fd = connect_to(port);
  char buffer[8192];
  for (int i = 0; i < count; ++i) {
    const auto start = Clock::now();
    SKIFF_CHECK(write(fd, request.data(), request.size()) == static_cast<ssize_t>(request.size()));
    std::string answer;
    while (!answer.ends_with(kAnswer)) {
      const ssize_t got = read(fd, buffer, sizeof buffer);
      SKIFF_CHECK(got > 0, "the connection ended: {}", answer);
      answer.append(buffer, static_cast<size_t>(got));
    }
    SKIFF_CHECK(answer.starts_with("HTTP/1.1 200 "), "{}", answer);
    seconds->push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  close(fd);
}

struct Times {
  double rate, p50, p99;
};

Times measure(uint16_t port, int requests, int connections, const std::string& request) {
  std::vector<std::vector<double>> each(static_cast<size_t>(connections));
  std::vector<std::thread> threads;
  const auto start = Clock::now();
  for (auto& one : each)
    threads.emplace_back([&] { ask(port, requests / connections, request, &one); });
  for (std::thread& thread : threads) thread.join();
  const double wall = std::chrono::duration<double>(Clock::now() - start).count();
  std::vector<double> all;
  for (const auto& one : each) all.insert(all.end(), one.begin(), one.end());
  std::sort(all.begin(), all.end());
  const auto at = [&](double part) {
    return all[static_cast<size_t>(part * static_cast<double>(all.size() - 1))];
  };
  return {static_cast<double>(all.size()) / wall, at(0.5), at(0.99)};
}

void compare(const char* what, uint16_t direct, uint16_t routed, int requests, int connections,
             const std::string& request) {
  measure(routed, requests / 10, connections, request);  // connections are made
  // Turns, so that a machine that slows down slows both; the quietest of each counts.
  Times best_direct{}, best_routed{};
  for (int turn = 0; turn < 3; ++turn) {
    const Times one = measure(direct, requests, connections, request);
    const Times other = measure(routed, requests, connections, request);
    if (one.rate > best_direct.rate) best_direct = one;
    if (other.rate > best_routed.rate) best_routed = other;
  }
  fmt::print(
      "{:<28} {:>3} conn  direct {:>7.0f}/s p50 {:>5.0f} us p99 {:>5.0f} us  "
      "routed {:>6.0f}/s p50 {:>5.0f} us p99 {:>5.0f} us  overhead p50 {:>4.0f} p99 {:>4.0f} us\n",
      what, connections, best_direct.rate, 1e6 * best_direct.p50, 1e6 * best_direct.p99,
      best_routed.rate, 1e6 * best_routed.p50, 1e6 * best_routed.p99,
      1e6 * (best_routed.p50 - best_direct.p50), 1e6 * (best_routed.p99 - best_direct.p99));
}

std::string request_of(size_t prompt_bytes) {
  const std::string body = R"({"model":"m","messages":[{"role":"user","content":")" +
                           std::string(prompt_bytes, 'x') + R"("}]})";
  return fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
      "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
      body.size(), body);
}

int run(int requests, int connections) {
  spdlog::set_level(spdlog::level::warn);
  const uint16_t backend = in_child(1, serve_nothing);
  const uint16_t router = in_child(0, [&] { return route_to(backend); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the first probe
  fmt::print("the router on one core, {} requests, best of three\n", requests);
  compare("prompt of 1 KB, alone", backend, router, requests / 4, 1, request_of(1000));
  compare("prompt of 1 KB", backend, router, requests, connections, request_of(1000));
  compare("prompt of 32 KB, alone", backend, router, requests / 8, 1, request_of(32000));
  return 0;
}

}  // namespace
}  // namespace skiff::bench

int main(int argc, char** argv) {
  return skiff::bench::run(argc > 1 ? std::atoi(argv[1]) : 20000,
                           argc > 2 ? std::atoi(argv[2]) : 16);
}
