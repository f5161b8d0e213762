#include "engine/engine.h"

#include <utility>

namespace skiff {

Engine::Engine(Scheduler& scheduler, Runner& runner, Queue<Command>& inbox, Outbox outbox,
               size_t depth)
    : scheduler_(scheduler),
      runner_(runner),
      inbox_(inbox),
      outbox_(std::move(outbox)),
      depth_(depth) {
  SKIFF_CHECK(depth >= 1);
}

void Engine::take(Command& command) {
  if (const auto* cancel = std::get_if<Cancel>(&command)) return scheduler_.cancel(cancel->id);
  auto& sequence = std::get<NewSequence>(command);
  const SeqId id = sequence.id;
  const Status status = scheduler_.add(std::move(sequence));
  if (status) return;
  outbox_({{.seq = id, .finish = Finish::kExhausted, .why = status.error().what}});
}

void Engine::run(const std::atomic<bool>& abort) {
  for (bool closed = false; !closed || !idle();) {
    closed = inbox_.closed();  // before the step, which then takes all that was ever sent
    if (abort) scheduler_.cancel_all();
    step();
  }
}

}  // namespace skiff
