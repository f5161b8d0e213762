#include "engine/engine.h"

#include <utility>

namespace skiff::engine {

Engine::Engine(sched::Scheduler& scheduler, Runner& runner, Queue<Command>& inbox, Outbox outbox,
               size_t depth, std::vector<TierIo*> sources, StepPacer pacer, DraftPace pace)
    : scheduler_(scheduler),
      runner_(runner),
      inbox_(inbox),
      outbox_(std::move(outbox)),
      depth_(depth),
      sources_(std::move(sources)),
      pacer_(std::move(pacer)),
      pace_(std::move(pace)) {
  SKIFF_CHECK(depth >= 1);
}

// Takes commands as they come until the next step is due to be planned.
void Engine::gather() {
  pacer_.beside(runner_.prompt_rows_beside());
  const auto begin = Clock::now(), until = pacer_.plan_at();
  if (until <= begin) return;
  for (bool came = true; came;) {
    std::vector<Command> commands = inbox_.drain_until(until);
    came = !commands.empty();
    for (Command& command : commands) take(command);
  }
  gathering_ += seconds_since(begin);
}

void Engine::take(Command& command) {
  if (const auto* cancel = std::get_if<Cancel>(&command)) return scheduler_.cancel(cancel->id);
  if (const auto* answer = std::get_if<TierDone>(&command)) return scheduler_.tiers().done(*answer);
  if (const auto* state = std::get_if<TierState>(&command))
    return scheduler_.tiers().source_is(*state);
  auto& sequence = std::get<NewSequence>(command);
  const SeqId id = sequence.id;
  if (!refusal_.empty())
    return outbox_({{.seq = id, .finish = Finish::kExhausted, .why = refusal_}});
  const Status status = scheduler_.add(std::move(sequence));
  if (status) return;
  outbox_({{.seq = id, .finish = Finish::kExhausted, .why = status.error().what}});
}

// Starts the jobs of lower tiers and passes events on to callers.
void Engine::report() {
  for (kv::TierJob& job : scheduler_.tiers().take_jobs()) {
    const auto source = static_cast<size_t>(job.source);
    SKIFF_CHECK(source < sources_.size() && sources_[source] != nullptr,
                "nobody moves the bytes of source {}", source);
    sources_[source]->start(std::move(job));
  }
  outbox_(scheduler_.take_events());
}

void Engine::run(const std::atomic<bool>& abort) {
  runner_.bind_thread();
  for (bool closed = false; !closed || !idle();) {
    closed = inbox_.closed();  // read before the step, which then takes every command ever sent
    if (abort) scheduler_.cancel_all();
    step();
  }
  errands_.close();
}

}  // namespace skiff::engine
