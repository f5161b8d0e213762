// engine/llm.h -- a loaded model with its engine thread: the interface that the server and the
// offline commands use. Tokens go in and events come out; text is handled in serve/ and text/.
#pragma once
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/config.h"
#include "engine/step_tally.h"
#include "kv/tiers.h"
#include "message/request.h"
#include "model/memory_plan.h"
#include "peer/settings.h"
#include "sched/draft_stats.h"

namespace skiff::engine {

struct Resolved;
class EngineMemory;

// A snapshot, for /metrics and /health. Counters only grow.
struct EngineStats {
  int running = 0, waiting = 0;
  int blocks_total = 0, blocks_free = 0;  // blocks_free includes blocks that could be evicted
  int blocks_unused = 0;                  // free blocks without contents
  uint64_t steps = 0, prompt_tokens = 0, cached_tokens = 0, generation_tokens = 0, preemptions = 0;
  sched::DraftStats drafts;
  StepTally tally;                    // sums over all steps
  kv::TierStats tiers;                // lower tiers of the prefix cache; 0 without them
  peer::Stats peers;                  // blocks from and to other instances
  double seconds_since_progress = 0;  // time since the last committed step while work waits; else 0
};

// submit, cancel, stats and stop may be called from any thread.
class Llm {
 public:
  // Called on the engine's thread; must be quick. With several replicas calls of different ones may
  // overlap.
  using Sink = std::function<void(std::vector<Event>)>;

  // Loads, plans memory, and starts the engine thread, or one for each replica that the
  // configuration asks for (engine/replicas.h). Prints the memory plan, progress and a time ledger
  // unless quiet. Throws LoadError.
  static std::unique_ptr<Llm> start(const EngineConfig& config, Sink sink);
  virtual ~Llm() = default;

  virtual const model::ModelConfig& model() const = 0;
  virtual const Resolved& resolved() const = 0;  // engine/resolved.h
  virtual const model::MemoryPlan& memory() const = 0;
  virtual bool batch_invariant() const = 0;  // see Ops
  // Never blocks. A sequence that cannot run gets an Event with kExhausted and the reason.
  virtual void submit(NewSequence sequence) = 0;
  // Submits the sequences of one request, at least one, which have one prompt: where there are
  // replicas, they run in the same one.
  virtual void submit_together(std::vector<NewSequence> sequences) {
    for (NewSequence& sequence : sequences) submit(std::move(sequence));
  }
  virtual void cancel(SeqId id) = 0;
  virtual EngineStats stats() const = 0;
  // Returns a snapshot for each replica; one where there is only one.
  virtual std::vector<EngineStats> stats_of_each() const { return {stats()}; }
  // Returns what each replica has in memory, for a Residency (engine/residency.h), which gives it
  // back while the engines live.
  virtual std::vector<EngineMemory*> memories() { return {}; }
  // Computes no more prompts that other instances ask for. Blocks that they were promised before
  // are still handed out; stats().peers.leases says for how many prompts.
  virtual void begin_drain() {}
  // Finishes (drain) or cancels what runs, then ends the engine thread. Idempotent; not from the
  // sink. What is submitted after it is refused, on the thread of submit().
  virtual void stop(bool drain) = 0;
};

}  // namespace skiff::engine
