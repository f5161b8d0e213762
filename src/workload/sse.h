// workload/sse.h -- reads a stream of server-sent events from the chat or completions endpoint as
// its bytes come, and records when each piece of text arrived.
#pragma once
#include <string>
#include <string_view>

#include "workload/client.h"

namespace skiff::workload {

class SseReader {
 public:
  // `now` is the time at which the bytes came. Fills first, gaps, usage and error of `out`.
  void feed(std::string_view bytes, double now, StreamOutcome& out);
  bool complete() const { return complete_; }  // [DONE] was there

 private:
  void event(std::string_view data, double now, StreamOutcome& out);

  std::string pending_;  // bytes of an event that is not complete
  double last_ = 0;      // when the last piece of text came
  bool complete_ = false;
};

}  // namespace skiff::workload
