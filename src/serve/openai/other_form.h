// serve/openai/other_form.h -- another protocol's requests on the generation routes, told from
// OpenAI's by their bodies.
#pragma once
#include <memory>

#include "base/json.h"
#include "serve/http/server.h"
#include "serve/service/admit.h"

namespace skiff::openai {

// Immutable and thread-safe.
class OtherForm {
 public:
  virtual ~OtherForm() = default;
  virtual bool claims(const OrderedJson& body) const = 0;
  // Answers a request that it claims. `ticket` is its admission; `body` lives for this call only.
  virtual void answer(const OrderedJson& body, const http::HttpRequest& request,
                      std::shared_ptr<http::HttpReply> reply, service::Ticket ticket) const = 0;
};

}  // namespace skiff::openai
