// capi/call.h -- a request under way: what was asked, and what its events are written with.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "message/request.h"
#include "serve/openai/chat_parts.h"
#include "serve/openai/params.h"
#include "serve/service/protocol_context.h"

namespace skiff::capi {

// Neither copied nor moved, because its ChatParts borrow from it.
struct Call {
  Call(uint64_t id, openai::OpenAiCall request, std::shared_ptr<const service::ProtocolContext> in)
      : id(id), asked(std::move(request)), context(std::move(in)) {
    for (int i = 0; i < asked.request.n; ++i) parts.emplace_back(asked, context->config);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  const uint64_t id;
  const openai::OpenAiCall asked;
  // What the ticket and the parts refer to. An event may be collected after the engine has gone.
  const std::shared_ptr<const service::ProtocolContext> context;
  bool split = false;         // replies come in parts: reasoning, content, calls
  double arrived = 0;         // Unix seconds
  std::vector<Token> prompt;  // until its first event is written
  service::Ticket ticket;     // counts until its last event is written

  std::vector<openai::ChatParts> parts;  // of each sequence; for the thread that writes events
};

}  // namespace skiff::capi
