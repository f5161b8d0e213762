// workload/sse.h -- reads a stream of server-sent events of the chat or completions endpoint as its
// bytes come, and notes when each piece of text was there.
#pragma once
#include <string>
#include <string_view>

#include "workload/client.h"

namespace skiff {

class SseReader {
 public:
  // `now` is when the bytes came. Fills first, gaps, usage and error of `out`.
  void feed(std::string_view bytes, double now, StreamOutcome& out);
  bool complete() const { return complete_; }  // [DONE] was there

 private:
  void event(std::string_view data, double now, StreamOutcome& out);

  std::string pending_;  // of an event that has not ended
  double last_ = 0;      // when the last piece of text came
  bool complete_ = false;
};

}  // namespace skiff
