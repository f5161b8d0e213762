// serve/service/reply_builder.h -- from an event of the engine to a piece of a reply: text, stop
// strings, usage, and the metrics of both. Private to EngineService.
#pragma once
#include "message/request.h"
#include "serve/service/engine_port.h"
#include "serve/service/open_request.h"

namespace skiff::service {

// For the output thread alone.
class ReplyBuilder {
 public:
  explicit ReplyBuilder(EnginePort& engine) : engine_(engine) {}

  // Advances the sequence by the event. The reply is empty if nothing of it can be shown yet.
  Reply build(OpenRequest& request, OpenSequence& sequence, Event& event);

  // Appends what was withheld of a sequence that ends, or is ended, here.
  static void flush(OpenSequence& sequence, Reply& reply);

 private:
  void append_tokens(const OpenRequest& request, OpenSequence& sequence, Event& event,
                     Reply& reply);
  static void append_token(OpenSequence& sequence, Token token, Reply& reply);
  static void cut_after(Event& event, size_t count, Reply& reply);
  static void end_reasoning(const OpenRequest& request, OpenSequence& sequence, Reply& reply);
  void measure_tokens(const OpenRequest& request, OpenSequence& sequence, int count);
  void end(OpenRequest& request, OpenSequence& sequence, Reply& reply);

  EnginePort& engine_;
};

}  // namespace skiff::service
