#include "route/prober.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <optional>
#include <utility>

#include "base/log.h"
#include "route/leg.h"

namespace skiff::route {
namespace {

constexpr size_t kMaxText = size_t{4} << 20;
constexpr double kWaitingWeight = 10;

std::chrono::nanoseconds duration(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

// One GET under way.
struct Get : std::enable_shared_from_this<Get> {
  using Done = std::function<void(std::optional<std::string>, const std::string&)>;
  Get(RouterCore& core, Done done) : limit(core.io), done(std::move(done)) {}

  void end(std::optional<std::string> text, const std::string& why) {
    const auto self = shared_from_this();
    limit.cancel();
    if (leg) leg->cancel();
    leg.reset();
    if (const auto call = std::exchange(done, nullptr)) call(std::move(text), why);
  }

  net::steady_timer limit;
  std::shared_ptr<Leg> leg;
  Done done;
  int status = 0;
  std::string body;
};

Leg::Events events_of(const std::shared_ptr<Get>& get) {
  return {.connected = [] {},
          .head = [get](const ResponseHead& head) { get->status = head.status; },
          .body =
              [get](const std::string& part) {
                get->body += part;
                if (get->body.size() > kMaxText) get->end(std::nullopt, "its answer is too long");
              },
          .done =
              [get] {
                if (get->status == 200) return get->end(std::move(get->body), "");
                get->end(std::nullopt, fmt::format("it answered {}", get->status));
              },
          .failed =
              [get](Leg::Failure failure, const std::string& why) {
                if (failure == Leg::Failure::kStale) return get->leg->start(/*fresh=*/true);
                get->end(std::nullopt, why);
              }};
}

// Returns the sum of a metric over all its labels.
std::optional<double> metric(std::string_view text, std::string_view name) {
  std::optional<double> sum;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.starts_with(name)) continue;
    line.remove_prefix(name.size());
    if (!line.starts_with('{') && !line.starts_with(' ')) continue;
    const size_t space = line.rfind(' ');
    double value = 0;
    if (space == std::string_view::npos) continue;
    std::from_chars(line.data() + space + 1, line.data() + line.size(), value);
    sum = sum.value_or(0) + value;
  }
  return sum;
}

}  // namespace

void get_text(RouterCore& core, const std::shared_ptr<Backend>& backend, const std::string& path,
              std::function<void(std::optional<std::string>, const std::string&)> done) {
  const auto get = std::make_shared<Get>(core, std::move(done));
  std::string head = fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\n", path,
                                 backend->url.substr(backend->url.find("//") + 2));
  if (!core.config.backend_key.empty())
    head += fmt::format("Authorization: Bearer {}\r\n", core.config.backend_key);
  get->leg =
      std::make_shared<Leg>(core.io, backend, core.legs, head + "\r\n", nullptr, events_of(get));
  get->limit.expires_after(duration(core.health.timeout));
  get->limit.async_wait([get](const boost::system::error_code& error) {
    if (!error) get->end(std::nullopt, "it did not answer in time");
  });
  get->leg->start();
}

double load_score(std::string_view text) {
  for (const std::string_view maker : {"fastdeploy:", "vllm:"}) {
    const auto running = metric(text, fmt::format("{}num_requests_running", maker));
    const auto waiting = metric(text, fmt::format("{}num_requests_waiting", maker));
    if (running && waiting) return *running + kWaitingWeight * *waiting;
  }
  return -1;
}

void Prober::start() { probe_all(); }

void Prober::probe_all() {
  const auto now = Clock::now();
  core_.registry.forget_absent(now);
  for (const auto& backend : core_.registry.all()) {
    drop_stale(*backend, core_.legs, now);
    if (!backend->probing) probe(backend, [](bool) {});
  }
  timer_.expires_after(duration(core_.health.interval));
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) probe_all();
  });
}

void Prober::probe(const std::shared_ptr<Backend>& backend, std::function<void(bool)> done) {
  backend->probing = true;
  get_text(core_, backend, "/health",
           [this, backend, done = std::move(done)](const std::optional<std::string>& body,
                                                   const std::string& why) {
             backend->probing = false;
             judge(backend, body.has_value(), why);
             done(body.has_value());
           });
  const Policy* policies[] = {core_.mixed.get(), core_.prefill.get(), core_.decode.get()};
  if (policies[static_cast<size_t>(backend->instance.role)]->wants_reported()) ask_load(backend);
}

void Prober::judge(const std::shared_ptr<Backend>& backend, bool good, const std::string& why) {
  if (!backend->health.probed(good, core_.health)) return;
  if (backend->health.up())
    spdlog::info("{} is up", backend->url);
  else
    spdlog::warn("{} is down: {}", backend->url, escaped(why));
}

void Prober::ask_load(const std::shared_ptr<Backend>& backend) {
  get_text(core_, backend, "/metrics",
           [backend](const std::optional<std::string>& body, const std::string&) {
             backend->load.reported = body ? load_score(*body) : -1;
           });
}

}  // namespace skiff::route
