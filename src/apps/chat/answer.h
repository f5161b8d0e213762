// apps/chat/answer.h -- one answer: runs a request and prints it as it comes.
#pragma once
#include <string>

#include "apps/chat/screen.h"
#include "apps/chat/signals.h"
#include "serve/service/service.h"

namespace skiff {

struct ChatAnswer {
  std::string said;
  Finish finish = Finish::kNone;  // kCancelled: stopped by a signal
  int signal = 0;                 // the one that stopped it
  std::string why;                // with Finish::kExhausted
  Usage usage;
  double first_seconds = 0;      // from the request to the first token
  double streaming_seconds = 0;  // from the first token to the last

  double tokens_per_second() const;  // after the first token; 0 if there is but one
};

// Returns when the answer has ended, or SIGINT, SIGTERM or SIGHUP has stopped it; then the request
// is cancelled. What was printed ends with \n if anything was.
ChatAnswer stream_answer(Service& service, Prepared request, ChatSignals& signals,
                         ChatScreen& screen);

}  // namespace skiff
