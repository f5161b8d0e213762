// engine/llm.h -- a loaded model with its engine thread: the interface that the server and the
// offline commands use. Tokens go in and events come out; text is handled in serve/ and text/.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "engine/config.h"
#include "engine/step_tally.h"
#include "kv/tiers.h"
#include "message/request.h"
#include "model/memory_plan.h"

namespace skiff::engine {

struct Resolved;

// A snapshot, for /metrics and /health. Counters only grow.
struct EngineStats {
  int running = 0, waiting = 0;
  int blocks_total = 0, blocks_free = 0;  // blocks_free includes blocks that could be evicted
  int blocks_unused = 0;                  // free blocks without contents
  uint64_t steps = 0, prompt_tokens = 0, cached_tokens = 0, generation_tokens = 0, preemptions = 0;
  StepTally tally;                    // sums over all steps
  kv::TierStats tiers;                // lower tiers of the prefix cache; 0 without them
  double seconds_since_progress = 0;  // time since the last committed step while work waits; else 0
};

// submit, cancel, stats and stop may be called from any thread.
class Llm {
 public:
  using Sink = std::function<void(std::vector<Event>)>;  // on the engine thread; must be quick

  // Loads, plans memory, starts the engine thread. Prints the memory plan, progress and a time
  // ledger unless quiet. Throws LoadError.
  static std::unique_ptr<Llm> start(const EngineConfig& config, Sink sink);
  virtual ~Llm() = default;

  virtual const model::ModelConfig& model() const = 0;
  virtual const Resolved& resolved() const = 0;  // engine/resolved.h
  virtual const model::MemoryPlan& memory() const = 0;
  virtual bool batch_invariant() const = 0;  // see Ops
  // Never blocks. A sequence that cannot run gets an Event with kExhausted and the reason.
  virtual void submit(NewSequence sequence) = 0;
  virtual void cancel(SeqId id) = 0;
  virtual EngineStats stats() const = 0;
  // Finishes (drain) or cancels what runs, then ends the engine thread. Idempotent; not from the
  // sink. What is submitted after it is refused, on the thread of submit().
  virtual void stop(bool drain) = 0;
};

}  // namespace skiff::engine
