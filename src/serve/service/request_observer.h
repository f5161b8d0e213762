// serve/service/request_observer.h -- what came of a request, for logs and traces. It holds no text
// of users.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "message/request.h"
#include "serve/service/request_tag.h"
#include "serve/service/service.h"

namespace skiff::service {

// One prompt with its n sequences. Seconds are from arrival; negative: it never came so far.
struct RequestSummary {
  SharedTag tag;  // not null
  std::chrono::system_clock::time_point arrived;
  double queued = -1, first_token = -1, total = 0;
  Usage usage;
  int n = 1, max_tokens = 0;
  float temperature = 1, top_p = 1;
  int top_k = 0;
  float frequency = 0, presence = 0, repetition = 1;  // penalties
  uint64_t seed = 0;               // that of the first sequence; number i has seed + i
  std::vector<Finish> finishes;    // how each sequence ended; kCancelled: the client left
  std::optional<Refusal> refusal;  // why it was given up, if it was
  std::string constraint;          // the kind of constraint; empty: none
  double mask_seconds = 0;         // the time that its masks took, over all sequences
  uint64_t masks = 0;
  int calls = 0, broken_calls = 0;  // tool calls that were read, and those that could not be
};

// Implementations are thread-safe and quick, and do not throw.
class RequestObserver {
 public:
  struct Counts {  // since start
    uint64_t log_dropped = 0, spans_dropped = 0, spans_sent = 0;
  };
  virtual ~RequestObserver() = default;
  // Each call is followed by one of ended() with the same tag.
  virtual void started(const RequestTag& tag) = 0;
  virtual void ended(RequestSummary summary) = 0;
  virtual Counts counts() const = 0;
};

}  // namespace skiff::service
