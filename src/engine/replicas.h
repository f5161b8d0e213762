// engine/replicas.h -- several engines with the same model behind the interface of one (data
// parallelism).
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "engine/dealer.h"
#include "engine/llm.h"

namespace skiff::engine {

// Each replica has its own scheduler, blocks, device or threads: a request runs in one of them from
// its first token to its last, so its tokens are those that one engine gives. The sequences of one
// submit_together() stay together. Replicas know nothing of each other, unless they share experts:
// then they compute in rounds (engine/lockstep.h), and plan each for itself.
//
// A replica without work sleeps, and no other waits for it; one that shares experts takes part in
// the rounds of others. One that fails ends the process, as a single engine does:
// EngineConfig::failed is called.
class Replicas final : public Llm {
 public:
  using All = std::vector<std::unique_ptr<Llm>>;
  // Starts all replicas, at least one. The events of all go into `heard`.
  using Start = std::function<All(const Sink& heard)>;

  // Calls `start`; what it throws is passed on. `sink` gets the events of all, from the threads of
  // all: calls may overlap, but not those about one sequence.
  Replicas(const Start& start, Sink sink);
  ~Replicas() override { stop(/*drain=*/false); }

  const model::ModelConfig& model() const override { return replicas_.front()->model(); }
  // Those of the first replica; the others differ in device and threads at most.
  const Resolved& resolved() const override { return replicas_.front()->resolved(); }
  const model::MemoryPlan& memory() const override { return replicas_.front()->memory(); }
  bool batch_invariant() const override { return replicas_.front()->batch_invariant(); }
  void submit(NewSequence sequence) override;
  void submit_together(std::vector<NewSequence> sequences) override;
  void cancel(SeqId id) override;
  EngineStats stats() const override;  // the sum; of the times without progress, the longest
  std::vector<EngineStats> stats_of_each() const override;
  std::vector<EngineMemory*> memories() override;
  void stop(bool drain) override;  // stops all at the same time

 private:
  void hear(std::vector<Event> events);

  const Sink sink_;
  All replicas_;
  std::unique_ptr<Dealer> dealer_;
};

// Returns the sum of one or more snapshots, as Replicas::stats() does.
EngineStats sum_of(const std::vector<EngineStats>& all);

}  // namespace skiff::engine
