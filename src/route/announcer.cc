#include "route/announcer.h"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/udp.hpp>
#include <charconv>
#include <chrono>
#include <exception>
#include <tuple>

#include "base/log.h"
#include "serve/http/api_keys.h"

namespace skiff::route {
namespace {

constexpr size_t kMaxAnswer = 64 << 10;
// Seconds for each step, and for all: the server waits for an exchange under way before it ends.
constexpr double kPatience = 3, kLongest = 6;

}  // namespace

Result<fetch::Url> parse_router(std::string_view text) {
  const bool whole = text.find("://") != std::string_view::npos;
  auto url = fetch::parse_url(whole ? std::string(text) : "http://" + std::string(text));
  if (!url)
    return Error{Code::kInvalid, fmt::format("--router {}: {}", escaped(text), url.error().what),
                 "router"};
  url->target = "/register";
  return url;
}

std::string address_towards(const fetch::Url& router, fetch::NameLookup& names) {
  namespace ip = boost::asio::ip;
  const auto found = names.find(router.host, kPatience);
  if (!found) return "";
  uint16_t port = 0;
  std::from_chars(router.port.data(), router.port.data() + router.port.size(), port);
  boost::asio::io_context io;
  boost::system::error_code error;
  ip::udp::socket socket(io);
  std::ignore = socket.connect({ip::make_address(found->front()), port}, error);
  if (error) return "";
  const auto local = socket.local_endpoint(error);
  return error ? "" : local.address().to_string();
}

Announcer::Announcer(AnnouncerSettings settings)
    : settings_(std::move(settings)),
      client_({.connect_seconds = kPatience,
               .idle_seconds = kPatience,
               .total_seconds = kLongest,
               .body_rate = 0}),
      thread_([this] { run(); }) {}

Announcer::~Announcer() {
  {
    std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Announcer::run() {
  std::unique_lock lock(mutex_);
  while (!leaving_) {
    lock.unlock();
    report(announce(/*paused=*/false));
    lock.lock();
    changed_.wait_for(lock, std::chrono::duration<double>(settings_.interval),
                      [this] { return leaving_; });
  }
  lock.unlock();
  if (!failing_) report(announce(/*paused=*/true));
}

Status Announcer::announce(bool paused) try {
  Json body = settings_.instance;
  if (!body.contains("host_ip")) {
    const std::string host = address_towards(settings_.router, names_);
    if (host.empty())
      return Error{Code::kExhausted,
                   "no address of this machine leads there (--router-advertise gives one)"};
    body["host_ip"] = host;
  }
  body["is_paused"] = paused;
  fetch::Request request{.method = "POST",
                         .url = settings_.router,
                         .headers = {{"Content-Type", "application/json"}},
                         .body = body.dump()};
  if (!settings_.key_file.empty()) {
    const auto keys = http::read_key_file(settings_.key_file, "router-key-file");
    if (!keys) return keys.error();
    request.headers.emplace_back("Authorization", "Bearer " + keys->front());
  }
  const auto answer = client_.fetch(request, kMaxAnswer);
  if (!answer) return answer.error();
  if (answer->first.status == 200) return ok();
  return Error{Code::kExhausted, fmt::format("it answered {}: {}", answer->first.status,
                                             escaped(answer->second, 300))};
} catch (const std::exception& e) {
  return Error{Code::kInternal, e.what()};
}

void Announcer::report(const Status& done) {
  const bool failed = !done;
  if (reported_ && failed == failing_) return;
  reported_ = true;
  failing_ = failed;
  if (failed)
    spdlog::warn("the router {} does not know this server: {}; it is told every {} s",
                 settings_.router.authority(), escaped(done.error().what, 400), settings_.interval);
  else
    spdlog::info("registered with the router {}", settings_.router.authority());
}

}  // namespace skiff::route
