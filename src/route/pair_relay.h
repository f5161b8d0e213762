// route/pair_relay.h -- one request on its way to a pair: a prefill and a decode instance get it at
// the same time, each told of the other, and the client gets the decode instance's answer.
#pragma once
#include <memory>
#include <string>
#include <unordered_set>

#include "route/relay.h"

namespace skiff::route {

// The answer begins when both heads are there. A pair of which one takes no connection or answers
// 503 is given up for another pair. If the prefill instance is lost and there is no other pair, or
// one of both may have begun with the request, the decode instance's answer is enough: it computes
// what it is not sent.
class PairRelay : public Relay {
 public:
  using Relay::Relay;
  bool partner_is_down() const override;
  void go_on_alone() override;

 protected:
  void go() override;
  void cancel_legs() override;

 private:
  bool refuse_body();
  std::shared_ptr<const std::string> body_for(const Instance& prefill,
                                              const Instance& decode) const;
  std::vector<std::shared_ptr<Backend>> candidates(Role role) const;
  std::shared_ptr<Leg> leg_to(const std::shared_ptr<Backend>& backend,
                              const std::shared_ptr<const std::string>& body,
                              const std::string& lines, Leg::Events events);
  Leg::Events prefill_events();
  Leg::Events decode_events();
  void failed(Backend& backend, Leg::Failure failure, const std::string& why);
  bool again(Backend& backend, const std::string& why);
  void prefill_head(const ResponseHead& head);
  void decode_head(const ResponseHead& head);
  void begin();
  void add(std::string part);
  void end();

  std::shared_ptr<Backend> prefill_, decode_;
  std::shared_ptr<Leg> prefill_leg_;
  std::optional<LoadShare> prefill_share_;
  std::unordered_set<std::string> failed_;  // URLs
  int tries_ = 0;
  bool prefill_settled_ = false;  // its head has arrived and says 200, or nobody waits for it
  bool decode_ready_ = false, decode_done_ = false;
  bool told_by_prefill_ = false;  // the client gets the prefill instance's refusal
  ResponseHead held_head_;        // the decode instance's, until the other one is ready
  std::string held_;
};

}  // namespace skiff::route
