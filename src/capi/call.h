// capi/call.h -- a request under way: what was asked, and what its events are written with.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "message/request.h"
#include "serve/openai/chat_parts.h"
#include "serve/openai/params.h"
#include "serve/service/protocol_context.h"

namespace skiff::capi {

// How the vector of a request that is pooled becomes its embedding, or the scores of its classes.
struct Pooled {
  bool classes = false;    // it has scores of classes, else an embedding
  int dimensions = 0;      // the width of an embedding; 0: all
  bool normalize = true;   // an embedding
  bool activation = true;  // false: scores of classes stay as the head gives them
};

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
  std::optional<Pooled> pooled;  // none: the prompt is continued
  bool split = false;            // replies come in parts: reasoning, content, calls
  double arrived = 0;            // Unix seconds
  std::vector<Token> prompt;     // until its first event is written
  service::Ticket ticket;        // counts until its last event is written

  // One for each sequence; only the thread that writes events uses them.
  std::vector<openai::ChatParts> parts;
};

}  // namespace skiff::capi
