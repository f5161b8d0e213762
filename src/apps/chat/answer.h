// apps/chat/answer.h -- runs one request and prints its answer as it comes.
#pragma once
#include <string>

#include "apps/chat/screen.h"
#include "apps/chat/signals.h"
#include "serve/service/service.h"

namespace skiff::apps {

struct ChatAnswer {
  std::string said;
  Finish finish = Finish::kNone;  // kCancelled: stopped by a signal
  int signal = 0;                 // the signal that stopped it
  std::string why;                // with Finish::kExhausted
  service::Usage usage;
  double first_seconds = 0;      // seconds from the request to the first token
  double streaming_seconds = 0;  // seconds from the first token to the last

  double tokens_per_second() const;  // excludes the first token; 0 if there is only one
};

// Returns when the answer has ended or SIGINT, SIGTERM or SIGHUP has stopped it, in which case the
// request is cancelled. If anything was printed, it ends with \n.
ChatAnswer stream_answer(service::Service& service, service::Prepared request, ChatSignals& signals,
                         ChatScreen& screen);

}  // namespace skiff::apps
