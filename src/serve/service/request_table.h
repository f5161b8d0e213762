// serve/service/request_table.h -- the requests that the engine works on: by id, by sequence and by
// deadline, and which of them wait. Private to EngineService.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "message/request.h"
#include "serve/service/aborts.h"
#include "serve/service/admission_ledger.h"
#include "serve/service/open_request.h"

namespace skiff::service {

// Thread-safe.
class RequestTable {
 public:
  using Time = ServiceClock::time_point;
  enum class Added {
    kNo,      // stop() has been called
    kPaused,  // between pause() and resume()
    kYes,
    kNextDeadline,  // the request has the earliest deadline of all
  };
  struct SequenceRef {
    std::shared_ptr<OpenRequest> request;
    size_t index = 0;
  };
  // A request that is in the table no longer.
  struct Removed {
    std::shared_ptr<OpenRequest> request;  // null: there was none
    std::vector<size_t> running;           // indices of its sequences that had not ended
  };
  // One that ran out of time, and the end of its reply.
  struct Expired {
    Removed removed;
    Reply end;
  };

  explicit RequestTable(const AdmissionLimits& limits) : ledger_(limits) {}

  Added add(const std::shared_ptr<OpenRequest>& request);
  // The sequence that an event is about. Nothing if it has ended or was cancelled: its events may
  // still arrive. Takes note of a sequence that has been admitted to the batch.
  std::optional<SequenceRef> find(const Event& event);
  // Removes the sequence if it has ended, and the request with its last sequence. False if the
  // request was cancelled meanwhile.
  bool remove_ended(const SequenceRef& sequence);
  // Gives the sequence another id; events of the old one are then about nothing. False if the
  // request was cancelled meanwhile.
  bool rename(const SequenceRef& sequence, SeqId id);
  bool contains(RequestId id) const;
  Removed remove(RequestId id);
  // Removes and returns the request with the earliest deadline, if that has passed.
  std::optional<Expired> remove_expired(Time now);
  // kNever if no request has a deadline.
  Time next_deadline() const;

  // Those that the names mean; all with `all`.
  std::vector<Removed> remove_named(bool all, AbortNames names);

  // Nothing is added from now on, for this reason; empty: requests are taken again.
  void set_paused(std::string why);
  bool paused() const;
  std::string pause_reason() const;
  bool empty() const;
  // From now on nothing is added. The requests in the table; nothing if it was stopped before.
  std::optional<std::vector<RequestId>> stop();
  bool stopped() const;

  // Returns why these prompts may not join those that wait; see Service::overloaded().
  std::optional<Overload> overload(std::span<const Prepared> prompts);
  bool queue_full() const;
  int retry_seconds();
  int64_t waiting_tokens() const;

 private:
  // With mutex_ held.
  Removed take(RequestId id);
  void admit(OpenRequest& request, OpenSequence& sequence);
  void set_deadline(OpenRequest& request);
  double seconds_allowed(const OpenRequest& request) const;
  Reply end_of(const OpenRequest& request, double waited, Time now);

  mutable std::mutex mutex_;  // guards the rest
  std::unordered_map<RequestId, std::shared_ptr<OpenRequest>> requests_;
  std::unordered_map<SeqId, SequenceRef> sequences_;
  std::set<std::pair<Time, RequestId>> deadlines_;
  AdmissionLedger ledger_;
  bool stopped_ = false;
  std::string paused_;  // the reason; empty: it is not
};

}  // namespace skiff::service
