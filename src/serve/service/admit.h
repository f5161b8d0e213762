// serve/service/admit.h -- admission: whether a generation may start now. Every protocol asks here
// before it reads a request, and again once it knows the prompts.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "serve/service/service.h"

namespace skiff::service {

// Why a generation is not admitted. A protocol words it as its clients expect.
struct AdmissionRefusal {
  enum class Kind {
    kDraining,      // the server goes down
    kPaused,        // the operator has paused the service
    kConcurrency,   // max_concurrency generations are under way
    kQueueFull,     // too many prompt tokens wait for a place in the batch
    kUnknownModel,  // the server has no model of that name
  };
  Kind kind = Kind::kDraining;
  std::string message;
  int retry_seconds = 0;  // when to try again; 0: the same request would be refused again
};

// One generation among those under way: it counts from admit() to release(), or to the end of the
// ticket's life. A ticket made by its default constructor counts for nothing.
class Ticket {
 public:
  Ticket() = default;
  void release() { count_.reset(); }

 private:
  friend class AdmissionControl;
  struct Decrement {
    void operator()(std::atomic<int>* count) const { --*count; }
  };
  explicit Ticket(std::atomic<int>* count) : count_(count) {}
  std::unique_ptr<std::atomic<int>, Decrement> count_;
};

// Outlives its tickets. Thread-safe.
//
// Use: admit() before anything of a request is parsed, check_model() once its model is known,
// check_queue() once its prompts are, then Service::start(); keep the ticket until the reply has
// been made.
class AdmissionControl {
 public:
  // `model_names` is not empty; `service` outlives this.
  AdmissionControl(int max_concurrency, std::vector<std::string> model_names, Service& service);

  std::variant<Ticket, AdmissionRefusal> admit();
  // The refusal for lack of room, or because of a pause, that admit() would give now, if any. Takes
  // no ticket and is quick: it is asked on I/O threads.
  std::optional<AdmissionRefusal> refuse_when_full();
  // The empty name and "default" stand for the first of the server's names.
  std::optional<AdmissionRefusal> check_model(std::string_view name) const;
  // A refusal if these prompts of one request would exceed --max-waiting-tokens; without prompts,
  // if any prompt at all would.
  std::optional<AdmissionRefusal> check_queue(std::span<const Prepared> prompts);

  AdmissionRefusal unknown_model(std::string_view name) const;

  // From now on nothing is admitted.
  void begin_drain() { draining_ = true; }
  bool draining() const { return draining_; }

 private:
  AdmissionRefusal too_many();
  std::optional<AdmissionRefusal> refuse_when_paused();

  const int max_concurrency_;
  const std::vector<std::string> model_names_;
  Service& service_;
  std::atomic<bool> draining_{false};
  std::atomic<int> open_{0};
};

}  // namespace skiff::service
