// capi/submit.h -- from the body of a request to a call that runs, for each kind of request.
#pragma once
#include <string_view>

#include "capi/loaded.h"
#include "capi/outbox.h"
#include "capi/outcome.h"

namespace skiff::capi {

constexpr size_t kMaxBody = 64u << 20;  // bytes

struct Submission {
  Loaded& loaded;
  std::shared_ptr<Outbox> outbox;
  uint64_t id;  // names the request; unique in the outbox
};

// Checks, templates and tokenizes on the caller's thread, then starts the request; its replies go
// to the outbox.
Outcome submit(const Submission& to, std::string_view kind, std::string_view body);

// What skiff_tokenize() and skiff_detokenize() answer.
Outcome tokenize(Loaded& loaded, std::string_view body, std::string* json);
Outcome detokenize(Loaded& loaded, std::string_view body, std::string* json);

}  // namespace skiff::capi
