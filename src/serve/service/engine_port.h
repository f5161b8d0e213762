// serve/service/engine_port.h -- what the service needs from an engine; tests implement it, too.
#pragma once
#include "engine/llm.h"
#include "message/request.h"

namespace skiff::service {

// Thread-safe. Events come back through the queue that the service was given.
class EnginePort {
 public:
  virtual ~EnginePort() = default;
  virtual void submit(NewSequence sequence) = 0;
  virtual void cancel(SeqId id) = 0;
  virtual engine::EngineStats stats() const = 0;
};

// Borrows the Llm.
class LlmPort : public EnginePort {
 public:
  explicit LlmPort(engine::Llm& llm) : llm_(llm) {}
  void submit(NewSequence sequence) override { llm_.submit(std::move(sequence)); }
  void cancel(SeqId id) override { llm_.cancel(id); }
  engine::EngineStats stats() const override { return llm_.stats(); }

 private:
  engine::Llm& llm_;
};

}  // namespace skiff::service
