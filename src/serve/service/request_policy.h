// serve/service/request_policy.h -- what the operator lets requests decide.
#pragma once

namespace skiff {

struct RequestPolicy {
  bool trust_chat_template = false;  // a request may bring a chat template of its own
  bool priority = false;             // a request's priority counts; else only 0 is accepted
  bool shared_cache = false;         // several API keys share one prefix cache
};

}  // namespace skiff
