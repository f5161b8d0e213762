#include "route/relay.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

#include "base/log.h"
#include "base/seconds.h"
#include "route/forward.h"

namespace skiff::route {

Relay::Relay(RouterCore& core, Incoming incoming, Role role)
    : core_(core),
      incoming_(std::move(incoming)),
      answer_(core, incoming_.request.path, std::move(incoming_.reply)),
      heard_(Clock::now()),
      role_(role) {
  core_.relays.insert(this);
}

Relay::~Relay() {
  core_.relays.erase(this);
  --core_.open;
}

void Relay::start() {
  answer_.on_close([weak = weak_from_this(), &io = core_.io] {
    net::post(io, [weak] {
      if (const auto self = weak.lock()) self->client_left();
    });
  });
  go();
}

void Relay::send() {
  auto backends = core_.registry.usable(role_);
  std::erase_if(backends,
                [&](const auto& backend) { return std::ranges::count(tried_, backend) > 0; });
  if (backends.empty()) {
    answer_.refuse(503, "no available workers: every instance is down, paused or not there yet");
    return over();
  }
  send_to(core_.choose(role_ == Role::kMixed ? *core_.mixed : *core_.decode, backends,
                       incoming_.prompt));
}

void Relay::send_to(const std::shared_ptr<Backend>& backend) {
  tried_.push_back(backend);
  share_.emplace(backend, incoming_.prompt.tokens);
  leg_ = std::make_shared<Leg>(core_.io, core_.names, backend, core_.legs,
                               forwarded_head(incoming_.request, backend->instance.authority(),
                                              incoming_.body->size(), core_.config.backend_key),
                               incoming_.body, answering_events());
  leg_->start();
}

Leg::Events Relay::answering_events() {
  const auto self = shared_from_this();
  return {.connected = [self] { self->dispatched(); },
          .head = [self](const ResponseHead& head) { self->head(head); },
          .body =
              [self](std::string part) {
                self->heard_ = Clock::now();
                self->answer_.add(
                    std::move(part), [&] { self->leg_->pause(); },
                    [weak = std::weak_ptr(self->leg_)] {
                      if (const auto leg = weak.lock()) leg->resume();
                    });
              },
          .done =
              [self] {
                self->answer_.end();
                self->over();
              },
          .failed = [self](Leg::Failure failure,
                           const std::string& why) { self->failed(failure, why); }};
}

void Relay::dispatched() {
  dispatched_ = Clock::now();
  if (!std::exchange(timed_, true)) core_.metrics.dispatch.add(seconds(dispatched_ - arrived()));
}

bool Relay::may_retry() const {
  if (static_cast<int>(tried_.size()) >= core_.config.tries) return false;
  const auto usable = core_.registry.usable(role_);
  return std::ranges::any_of(
      usable, [&](const auto& backend) { return std::ranges::count(tried_, backend) == 0; });
}

void Relay::retry(const std::string& why) {
  ++core_.metrics.retries;
  spdlog::debug("request {}: {} {}; another backend gets it", escaped(incoming_.request.request_id),
                leg_->backend().url, escaped(why));
  leg_->cancel();
  send();
}

void Relay::head(const ResponseHead& head) {
  if (head.status == 503) tried_.back()->refused(head.header("retry-after"), Clock::now());
  if (head.status == 503 && !answer_.began() && may_retry()) return retry("answered 503");
  share_->answered();
  core_.metrics.first_byte.add(seconds_since(dispatched_));
  answer_.begin(head, leg_->left());
}

void Relay::failed(Leg::Failure failure, const std::string& why) {
  Backend& backend = *tried_.back();
  const bool reads = incoming_.request.method == "GET" || incoming_.request.method == "HEAD";
  if (failure == Leg::Failure::kStale && reads) return leg_->start(/*fresh=*/true);
  ++backend.failures;
  if (failure == Leg::Failure::kConnect) {
    if (backend.health.unreachable(core_.health))
      spdlog::warn("{} is down: {}", backend.url, escaped(why));
    if (may_retry()) return retry(why);
  }
  fail(fmt::format("the backend failed: {}", why));
}

void Relay::fail(const std::string& why) {
  spdlog::warn("request {}: {} ({})", escaped(incoming_.request.request_id), escaped(why),
               leg_ ? leg_->backend().url : "no backend");
  if (answer_.began())
    answer_.break_off(why);
  else
    answer_.refuse(502, why);
  over();
}

void Relay::cut_off(const std::string& why) {
  if (over_) return;
  const auto self = shared_from_this();
  if (answer_.began())
    answer_.break_off(why);
  else
    answer_.refuse(504, why);
  over();
}

double Relay::silence(Clock::time_point now) const {
  if (!leg_ || leg_->backend().health.up() || leg_->backend().answers) return 0;
  return seconds(now - heard_);
}

void Relay::client_left() {
  if (over_) return;
  const auto self = shared_from_this();
  answer_.drop();
  over();
}

void Relay::cancel_legs() {
  if (leg_) leg_->cancel();
}

void Relay::over() {
  if (std::exchange(over_, true)) return;
  share_.reset();
  cancel_legs();
}

}  // namespace skiff::route
