// engine/random_case_testing.h -- for tests: random requests, the order in which they arrive and
// are cancelled, and the events of each.
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "base/queue.h"
#include "engine/engine.h"

namespace skiff::engine {

// What steps of up to some dozen rows may cost, on a scale of milliseconds.
inline sched::StepCost random_cost(std::mt19937_64& rng) {
  std::vector<sched::StepCost::Point> points;
  for (int rows = 1; rows < 64; rows += 1 + static_cast<int>(rng() % 24))
    points.push_back({rows, 1e-3 * static_cast<double>(1 + rng() % 20)});
  return {
      std::move(points),
      {.doubling = static_cast<int>(rng() % 40), .seconds = 1e-5 * static_cast<double>(rng() % 9)}};
}

// All events of one sequence.
struct Heard {
  std::vector<Token> tokens;
  std::vector<PositionLogprobs> logprobs, prompt_logprobs;
  std::vector<DraftLogprobs> draft_logprobs;  // by their places among all tokens
  std::vector<float> pooled;
  Finish finish = Finish::kNone;
  int admitted = 0, cached = 0, after_end = 0;
  std::string why;
};

class Listener {
 public:
  void hear(const std::vector<Event>& events) {
    for (const Event& e : events) {
      Heard& h = heard_[e.seq];
      h.after_end += h.finish != Finish::kNone;
      for (const auto& [at, draft] : e.draft_logprobs)
        h.draft_logprobs.push_back({static_cast<int>(h.tokens.size()) + at, draft});
      h.tokens.insert(h.tokens.end(), e.tokens.begin(), e.tokens.end());
      h.logprobs.insert(h.logprobs.end(), e.logprobs.begin(), e.logprobs.end());
      h.prompt_logprobs.insert(h.prompt_logprobs.end(), e.prompt_logprobs.begin(),
                               e.prompt_logprobs.end());
      h.finish = e.finish;
      h.admitted += e.admitted;
      h.cached += e.cached;
      if (!e.why.empty()) h.why = e.why;
      h.pooled.insert(h.pooled.end(), e.pooled.begin(), e.pooled.end());
    }
  }
  const Heard& of(SeqId id) const { return heard_.at(id); }
  bool knows(SeqId id) const { return heard_.count(id) > 0; }

 private:
  std::map<SeqId, Heard> heard_;
};

// Commands in the order in which they are sent; a cancel may come before, while or after its
// sequence runs.
inline std::vector<Command> shuffled_commands(const std::vector<NewSequence>& sequences,
                                              double cancels, std::mt19937_64& rng) {
  std::vector<Command> out(sequences.begin(), sequences.end());
  std::bernoulli_distribution cancel(cancels);
  for (const NewSequence& s : sequences) {
    if (!cancel(rng)) continue;
    const auto begin = std::find_if(out.begin(), out.end(), [&](const Command& c) {
      const auto* n = std::get_if<NewSequence>(&c);
      return n != nullptr && n->id == s.id;
    });
    const auto room = static_cast<uint64_t>(out.end() - begin);
    out.insert(begin + 1 + static_cast<long>(rng() % std::min<uint64_t>(room, 5)), Cancel{s.id});
  }
  return out;
}

// Sends the commands a few at a time between steps, until all is done. `between` is called before
// each step; with true, it must make a tier answer, or one will by itself.
inline void run_commands(
    Engine& engine, Queue<Command>& inbox, std::vector<Command> commands, std::mt19937_64& rng,
    const std::function<void(bool)>& between = [](bool) {}) {
  size_t sent = 0;
  while (sent < commands.size() || !engine.idle()) {
    size_t n = rng() % 3 ? 0 : rng() % 5;
    if (engine.idle()) n = std::max<size_t>(n, 1);  // an idle engine would block
    for (; n > 0 && sent < commands.size(); --n) inbox.push(std::move(commands[sent++]));
    between(engine.awaits());
    engine.step();
  }
}

}  // namespace skiff::engine
