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

// A short request under way. The wait for its time limit holds it, so it is gone at the latest with
// the io_context.
struct Asking : std::enable_shared_from_this<Asking> {
  using Done = std::function<void(int, std::string)>;
  Asking(RouterCore& core, Done done) : limit(core.io), done(std::move(done)) {}

  void add(const std::string& part) {
    body += part;
    if (body.size() > kMaxText) end(0, "its answer is too long");
  }
  void failed(Leg::Failure failure, const std::string& why) {
    if (failure == Leg::Failure::kStale) return leg->start(/*fresh=*/true);
    end(0, why);
  }
  void end(int answered, std::string text) {
    const auto self = shared_from_this();
    limit.cancel();
    if (leg) leg->cancel();
    leg.reset();
    if (const auto call = std::exchange(done, nullptr)) call(answered, std::move(text));
  }

  net::steady_timer limit;
  std::shared_ptr<Leg> leg;
  Done done;
  int status = 0;
  std::string body;
};

// The leg, which the request holds, does not hold the request.
Leg::Events events_of(const std::weak_ptr<Asking>& weak) {
  return {.connected = [] {},
          .head =
              [weak](const ResponseHead& head) {
                if (const auto asking = weak.lock()) asking->status = head.status;
              },
          .body =
              [weak](const std::string& part) {
                if (const auto asking = weak.lock()) asking->add(part);
              },
          .done =
              [weak] {
                if (const auto asking = weak.lock())
                  asking->end(asking->status, std::move(asking->body));
              },
          .failed =
              [weak](Leg::Failure failure, const std::string& why) {
                if (const auto asking = weak.lock()) asking->failed(failure, why);
              }};
}

// Returns the backend as it is asked for its metrics, which may be at another port.
std::shared_ptr<Backend> metrics_place(const std::shared_ptr<Backend>& backend) {
  const uint16_t port = backend->instance.metrics_port;
  if (port == 0 || port == backend->instance.port) return backend;
  auto& place = backend->metrics_place;
  if (place && place->instance.port == port) return place;
  Instance instance = backend->instance;
  instance.port = port;
  place = std::make_shared<Backend>(std::move(instance), /*fixed=*/false, /*max_blocks=*/1,
                                    Clock::now());
  return place;
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

void ask(RouterCore& core, const std::shared_ptr<Backend>& backend, std::string head,
         std::shared_ptr<const std::string> body, std::function<void(int, std::string)> done) {
  const auto asking = std::make_shared<Asking>(core, std::move(done));
  asking->leg = std::make_shared<Leg>(core.io, core.names, backend, core.legs, std::move(head),
                                      std::move(body), events_of(asking));
  asking->limit.expires_after(duration(core.health.timeout));
  asking->limit.async_wait([asking](const boost::system::error_code& error) {
    if (!error) asking->end(0, "it did not answer in time");
  });
  asking->leg->start();
}

void get_text(RouterCore& core, const std::shared_ptr<Backend>& backend, const std::string& path,
              std::function<void(int, std::string)> done) {
  std::string head =
      fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\n", path, backend->instance.authority());
  if (!core.config.backend_key.empty())
    head += fmt::format("Authorization: Bearer {}\r\n", core.config.backend_key);
  ask(core, backend, head + "\r\n", nullptr, std::move(done));
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
           [this, backend, done = std::move(done)](int status, const std::string& text) {
             backend->probing = false;
             judge(backend, status, text);
             done(status == 200);
           });
  const Policy* policies[] = {core_.mixed.get(), core_.prefill.get(), core_.decode.get()};
  if (policies[static_cast<size_t>(backend->instance.role)]->wants_reported()) ask_load(backend);
}

void Prober::judge(const std::shared_ptr<Backend>& backend, int status, const std::string& text) {
  backend->answers = status != 0;
  if (!backend->health.probed(status == 200, core_.health)) return;
  if (backend->health.up())
    spdlog::info("{} is up", backend->url);
  else
    spdlog::warn("{} is down: {}", backend->url,
                 status == 0 ? escaped(text) : fmt::format("it answered {}", status));
}

void Prober::ask_load(const std::shared_ptr<Backend>& backend) {
  const int64_t sent = backend->load.sent;
  get_text(core_, metrics_place(backend), "/metrics",
           [backend, sent](int status, const std::string& text) {
             backend->load.reported = status == 200 ? load_score(text) : -1;
             backend->load.sent_before = sent;
           });
}

}  // namespace skiff::route
