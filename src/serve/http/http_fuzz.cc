// Sends arbitrary bytes in arbitrary pieces through a connection. Besides the sanitizers it checks
// that every byte that comes back belongs to a reply, and that the pieces make no difference to the
// requests that the handler sees.
#include <sys/socket.h>
#include <unistd.h>
#include <boost/asio/read.hpp>

#include <cstdint>
#include <future>

#include "base/check.h"
#include "base/log.h"
#include "serve/http/connection.h"

namespace skiff::http {
namespace {

constexpr size_t kMaxHeader = 512;

class Harness {
 public:
  Harness() {
    spdlog::set_level(spdlog::level::off);
    HttpConfig config;
    config.worker_threads = 1;
    config.max_body = 4096;
    config.max_header = kMaxHeader;
    HttpHooks hooks;
    hooks.handler = [this](HttpRequest request, std::shared_ptr<HttpReply> reply) {
      seen_ += fmt::format("{} {} {} {} {}\n", request.method, request.path, request.query,
                           request.authority, request.body);
      for (const auto& [name, value] : request.headers)
        seen_ += fmt::format("{}={}\n", name, value);
      reply->send({.status = 200, .body = "ok"});
    };
    hooks.failure = [](int status, const std::string& why) {
      return HttpResponse{.status = status, .body = why};
    };
    core_ = std::make_shared<HttpCore>(config, std::move(hooks));
  }

  // `cuts` has the lengths of the pieces, used cyclically; without cuts all bytes are sent at once.
  // Returns the requests that the handler saw, in order.
  std::string run(std::string_view bytes, std::string_view cuts) {
    seen_.clear();
    int ends[2];
    SKIFF_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    StreamSocket socket(net::make_strand(net::any_io_executor(core_->io.get_executor())),
                        net::ip::tcp::v4(), ends[0]);
    const std::optional<ConnectionKind> kind = core_->connections.make_room();
    SKIFF_CHECK(kind.has_value(), "a connection that has ended still counts");
    auto connection = std::make_shared<HttpConnection>(
        core_, std::move(socket), HttpConnection::Origin{.client = "fuzz"}, *kind);
    core_->connections.add(connection, *kind);
    const std::weak_ptr<HttpConnection> alive = connection;
    connection->start();
    connection.reset();
    std::string out;
    for (size_t at = 0, i = 0; at < bytes.size() && !alive.expired(); ++i) {
      const size_t piece =
          cuts.empty() ? bytes.size() : 1 + static_cast<uint8_t>(cuts[i % cuts.size()]);
      const auto part = bytes.substr(at, piece);
      const ssize_t sent = send(ends[1], part.data(), part.size(), MSG_NOSIGNAL);
      if (sent > 0) at += static_cast<size_t>(sent);
      settle(ends[1], &out);
      if (sent < 0 && errno != EAGAIN) break;
    }
    settle(ends[1], &out);
    shutdown(ends[1], SHUT_WR);
    for (int i = 0; i < 1000 && !alive.expired(); ++i) settle(ends[1], &out);
    close(ends[1]);
    for (int i = 0; i < 1000 && !alive.expired(); ++i) settle(-1, &out);
    SKIFF_CHECK(alive.expired(), "a connection outlives its client");
    SKIFF_CHECK(out.empty() || out.starts_with("HTTP/1.1 "), "{}", escaped(out));
    return seen_;
  }

 private:
  // Runs I/O and handlers until both only wait.
  void settle(int fd, std::string* out) {
    for (size_t ran = 1; ran > 0;) {
      core_->io.restart();
      ran = core_->io.poll();
      for (net::thread_pool* lane : {&core_->workers, &core_->quick, &core_->large}) {
        std::promise<void> handled;
        net::post(*lane, [&] { handled.set_value(); });
        handled.get_future().wait();
      }
      ran += core_->io.poll();
      char buffer[4096];
      for (ssize_t got; fd >= 0 && (got = recv(fd, buffer, sizeof buffer, 0)) > 0; ++ran)
        out->append(buffer, static_cast<size_t>(got));
    }
  }

  std::shared_ptr<HttpCore> core_;
  std::string seen_;  // written by the worker, read by this thread, in turn
};

}  // namespace
}  // namespace skiff::http

// The input is a count of cuts, the cuts, the bytes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static skiff::http::Harness harness;
  if (size < 2) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cuts = std::min<size_t>(1 + data[0] % 16, size - 1);
  const std::string_view bytes = input.substr(1 + cuts);
  const std::string pieces = harness.run(bytes, input.substr(1, cuts));
  const std::string whole = harness.run(bytes, "");
  SKIFF_CHECK(pieces == whole, "the pieces of {} matter: {} and {}", skiff::escaped(bytes),
              skiff::escaped(pieces), skiff::escaped(whole));
  return 0;
}
