// serve/service/request_tag.h -- who asks: the name by which control endpoints find a request, and
// what logs and traces say of it. It never holds text of users.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

namespace skiff::service {

struct RequestTag {
  std::string id;           // as the reply names it, with the protocol's prefix: "chatcmpl-..."
  std::string route;        // the path of the endpoint: "/v1/chat/completions"
  std::string operation;    // as OpenTelemetry names it: "chat" or "text_completion"
  std::string model;        // as the reply names it
  uint64_t serial = 0;      // HttpRequest::serial; 0: the request did not come by HTTP
  std::string traceparent;  // the header of W3C's Trace Context as sent; empty: none
  bool streamed = false;
};

// Shared by the prompts of one request. Null: nobody knows the request by name.
using SharedTag = std::shared_ptr<const RequestTag>;

}  // namespace skiff::service
