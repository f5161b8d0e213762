// serve/service/request_policy.h -- which options the operator leaves to requests.
#pragma once

namespace skiff::service {

struct RequestPolicy {
  bool trust_chat_template = false;  // a request may carry a chat template of its own
  bool priority = false;             // requests may set a priority; else only 0 is accepted
  bool shared_cache = false;         // several API keys share one prefix cache
};

}  // namespace skiff::service
