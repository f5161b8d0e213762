// route/relay.h -- one request on its way: to a backend and, where that one cannot take it, to
// another. On the router's thread.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "route/answer.h"
#include "route/core.h"
#include "route/prompt.h"

namespace skiff::route {

// A client's request with what is needed to pass it on.
struct Incoming {
  http::HttpRequest request;  // its body has moved to `body`
  std::shared_ptr<const std::string> body;
  Prompt prompt;
  std::shared_ptr<http::HttpReply> reply;
  Clock::time_point arrived;
};

// Keeps itself alive while a leg is under way. A backend that takes no connection or answers 503 is
// left for another one, unless a byte of its answer has been passed on, or it may have begun with
// the request: a request that ends a process must not end one after the other.
class Relay : public std::enable_shared_from_this<Relay> {
 public:
  // `role` is that of the backends that may get the request.
  Relay(RouterCore& core, Incoming incoming, Role role = Role::kMixed);
  virtual ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  void start();
  void client_left();
  // Ends the request with an error, at its time limit or with the router.
  void cut_off(const std::string& why);
  Clock::time_point arrived() const { return incoming_.arrived; }
  // Returns the seconds for which the backend has sent nothing, if it is down and answers no
  // probes; else 0.
  double silence(Clock::time_point now) const;
  // Returns true if the answer is held back for a backend that is down, and that the one which
  // answers can do without; go_on_alone() holds it back no longer.
  virtual bool partner_is_down() const { return false; }
  virtual void go_on_alone() {}

 protected:
  virtual void go() { send(); }
  void dispatched();
  void fail(const std::string& why);
  virtual void cancel_legs();
  void over();

  RouterCore& core_;
  Incoming incoming_;
  Answer answer_;
  std::shared_ptr<Leg> leg_;  // the one whose answer the client gets
  std::optional<LoadShare> share_;
  Clock::time_point heard_;  // when the backend last sent something

 private:
  Leg::Events answering_events();
  void send();
  void send_to(const std::shared_ptr<Backend>& backend);
  bool may_retry() const;
  void retry(const std::string& why);
  void head(const ResponseHead& head);
  void failed(Leg::Failure failure, const std::string& why);

  const Role role_;
  std::vector<std::shared_ptr<Backend>> tried_;
  bool timed_ = false, over_ = false;
  Clock::time_point dispatched_;
};

}  // namespace skiff::route
