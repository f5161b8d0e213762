#include "route/pair_relay.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "route/forward.h"
#include "route/json_members.h"

namespace skiff::route {

bool PairRelay::partner_is_down() const {
  return prefill_ && !prefill_settled_ && !told_by_prefill_ && !prefill_->health.up();
}

// The decode instance knows how long it waits for blocks, and computes the prompt then. The prefill
// instance is not told to stop: it may only be slow to answer probes.
void PairRelay::go_on_alone() {
  const auto self = shared_from_this();
  prefill_share_.reset();
  prefill_settled_ = true;
  if (decode_ready_ && !answer_.began()) begin();
}

bool PairRelay::refuse_body() {
  if (!incoming_.prompt.readable)
    answer_.refuse(400, "the body is not a JSON object");
  else if (incoming_.prompt.disaggregated)
    answer_.refuse(400,
                   "disaggregate_info is set by the router, and names of fields must be written "
                   "without escapes; leave it out");
  else
    return false;
  return true;
}

std::vector<std::shared_ptr<Backend>> PairRelay::candidates(Role role) const {
  auto found = core_.registry.usable(role);
  std::erase_if(found, [&](const auto& backend) { return failed_.contains(backend->url); });
  return found;
}

void PairRelay::go() {
  if (refuse_body()) return over();
  ++tries_;
  const auto prefills = candidates(Role::kPrefill), decodes = candidates(Role::kDecode);
  if (prefills.empty() || decodes.empty()) {
    answer_.refuse(503, fmt::format("no available workers: {} prefill and {} decode instances can "
                                    "take the request",
                                    prefills.size(), decodes.size()));
    return over();
  }
  prefill_ = core_.choose(*core_.prefill, prefills, incoming_.prompt);
  decode_ = core_.choose(*core_.decode, decodes, incoming_.prompt);
  prefill_share_.emplace(prefill_, incoming_.prompt.tokens);
  share_.emplace(decode_, incoming_.prompt.tokens);
  const auto body = body_for(prefill_->instance, decode_->instance);
  const std::string lines = fmt::format("X-Router-Prefill-URL: {}\r\nX-Router-Decode-URL: {}\r\n",
                                        prefill_->url, decode_->url);
  prefill_leg_ = leg_to(prefill_, body, lines, prefill_events());
  leg_ = leg_to(decode_, body, lines, decode_events());
  // Either may have failed at once, and with it this attempt.
  const auto first = prefill_leg_, second = leg_;
  first->start();
  if (leg_ == second) second->start();
}

// Both instances know the request by one name, another one at each attempt.
std::shared_ptr<const std::string> PairRelay::body_for(const Instance& prefill,
                                                       const Instance& decode) const {
  const std::string& body = *incoming_.body;
  std::vector<JsonMember> members;
  json_members(body, &members);
  const bool named = std::ranges::any_of(
      members, [](const JsonMember& member) { return member.first == "request_id"; });
  std::string all = "{\"disaggregate_info\":" + disaggregate_info(prefill, decode).dump();
  if (!named)
    all += fmt::format(",\"request_id\":\"{}{}\"", incoming_.request.request_id,
                       tries_ > 1 ? fmt::format("-{}", tries_) : "");
  if (!members.empty()) all += ',';
  all.append(body, body.find('{') + 1);
  return std::make_shared<const std::string>(std::move(all));
}

std::shared_ptr<Leg> PairRelay::leg_to(const std::shared_ptr<Backend>& backend,
                                       const std::shared_ptr<const std::string>& body,
                                       const std::string& lines, Leg::Events events) {
  return std::make_shared<Leg>(core_.io, core_.names, backend, core_.legs,
                               forwarded_head(incoming_.request, backend->instance.authority(),
                                              body->size(), core_.config.backend_key, lines),
                               body, std::move(events));
}

Leg::Events PairRelay::prefill_events() {
  const auto self = std::static_pointer_cast<PairRelay>(shared_from_this());
  return {
      .connected = [] {},
      .head = [self](const ResponseHead& head) { self->prefill_head(head); },
      .body =
          [self](std::string part) {
            if (self->told_by_prefill_)
              self->answer_.add(
                  std::move(part), [] {}, [] {});
          },
      .done =
          [self] {
            self->prefill_share_.reset();
            if (self->told_by_prefill_) self->end();
          },
      .failed = [self](Leg::Failure failure,
                       const std::string& why) { self->failed(*self->prefill_, failure, why); }};
}

Leg::Events PairRelay::decode_events() {
  const auto self = std::static_pointer_cast<PairRelay>(shared_from_this());
  return {.connected = [self] { self->dispatched(); },
          .head = [self](const ResponseHead& head) { self->decode_head(head); },
          .body = [self](std::string part) { self->add(std::move(part)); },
          .done =
              [self] {
                self->decode_done_ = true;
                if (self->answer_.began()) self->end();
              },
          .failed = [self](Leg::Failure failure,
                           const std::string& why) { self->failed(*self->decode_, failure, why); }};
}

// Gives the request to another pair. Returns false if that may not be, or if there is none.
bool PairRelay::again(Backend& backend, const std::string& why) {
  if (answer_.began() || tries_ >= core_.config.tries) return false;
  failed_.insert(backend.url);
  if (candidates(Role::kPrefill).empty() || candidates(Role::kDecode).empty()) return false;
  ++core_.metrics.retries;
  spdlog::debug("request {}: {} {}; another pair gets it", escaped(incoming_.request.request_id),
                backend.url, escaped(why));
  cancel_legs();
  prefill_settled_ = decode_ready_ = decode_done_ = false;
  held_.clear();
  go();
  return true;
}

void PairRelay::failed(Backend& backend, Leg::Failure failure, const std::string& why) {
  ++backend.failures;
  if (failure == Leg::Failure::kConnect) {
    if (backend.health.unreachable(core_.health))
      spdlog::warn("{} is down: {}", backend.url, escaped(why));
    if (again(backend, why)) return;
  }
  if (&backend == prefill_.get() && !told_by_prefill_) {
    if (!prefill_settled_)
      spdlog::warn("request {}: {} {}; {} goes on alone", escaped(incoming_.request.request_id),
                   prefill_->url, escaped(why), decode_->url);
    return go_on_alone();
  }
  fail(fmt::format("the {} instance failed: {}", name(backend.instance.role), why));
}

void PairRelay::prefill_head(const ResponseHead& head) {
  if (prefill_share_) prefill_share_->answered();
  if (head.status == 503) prefill_->refused(head.header("retry-after"), Clock::now());
  if (head.status == 503 && !prefill_settled_ && again(*prefill_, "answered 503")) return;
  if (head.status == 200) {
    prefill_settled_ = true;
    if (decode_ready_ && !answer_.began()) begin();
    return;
  }
  if (answer_.began()) return;
  told_by_prefill_ = true;
  leg_->cancel();
  answer_.begin(head, prefill_leg_->left());
}

void PairRelay::decode_head(const ResponseHead& head) {
  if (head.status == 503) decode_->refused(head.header("retry-after"), Clock::now());
  if (head.status == 503 && again(*decode_, "answered 503")) return;
  share_->answered();
  held_head_ = head;
  decode_ready_ = true;
  if (head.status != 200) prefill_leg_->cancel();
  if (prefill_settled_ || head.status != 200) return begin();
  leg_->pause();
}

void PairRelay::begin() {
  answer_.begin(held_head_, decode_done_ ? static_cast<int64_t>(held_.size()) : leg_->left());
  if (!held_.empty()) add(std::exchange(held_, {}));
  if (decode_done_) return end();
  leg_->resume();
}

void PairRelay::add(std::string part) {
  heard_ = Clock::now();
  if (!answer_.began()) {
    held_ += part;
    return;
  }
  answer_.add(
      std::move(part), [this] { leg_->pause(); },
      [weak = std::weak_ptr(leg_)] {
        if (const auto leg = weak.lock()) leg->resume();
      });
}

void PairRelay::end() {
  answer_.end();
  over();
}

void PairRelay::cancel_legs() {
  prefill_share_.reset();
  if (prefill_leg_) prefill_leg_->cancel();
  Relay::cancel_legs();
}

}  // namespace skiff::route
