// serve/service/engine_port.h -- what the service needs from an engine; tests implement it, too.
#pragma once
#include <utility>
#include <vector>

#include "engine/llm.h"
#include "message/request.h"

namespace skiff::service {

// Thread-safe. Events come back through the queue that the service was given.
class EnginePort {
 public:
  virtual ~EnginePort() = default;
  virtual void submit(NewSequence sequence) = 0;
  // See Llm::submit_together().
  virtual void submit_together(std::vector<NewSequence> sequences) {
    for (NewSequence& sequence : sequences) submit(std::move(sequence));
  }
  virtual void cancel(SeqId id) = 0;
  virtual engine::EngineStats stats() const = 0;
  // A snapshot for each replica; one where there is only one.
  virtual std::vector<engine::EngineStats> stats_of_each() const { return {stats()}; }
};

// Borrows the Llm.
class LlmPort : public EnginePort {
 public:
  explicit LlmPort(engine::Llm& llm) : llm_(llm) {}
  void submit(NewSequence sequence) override { llm_.submit(std::move(sequence)); }
  void submit_together(std::vector<NewSequence> sequences) override {
    llm_.submit_together(std::move(sequences));
  }
  void cancel(SeqId id) override { llm_.cancel(id); }
  engine::EngineStats stats() const override { return llm_.stats(); }
  std::vector<engine::EngineStats> stats_of_each() const override { return llm_.stats_of_each(); }

 private:
  engine::Llm& llm_;
};

}  // namespace skiff::service
