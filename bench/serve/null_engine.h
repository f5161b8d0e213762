// bench/serve/null_engine.h -- the real scheduler and step loop over a model that costs nothing, so
// that only the host's work remains.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/stats_board.h"
#include "serve/service/engine_port.h"
#include "serve/service/engine_service.h"

namespace skiff::bench {

// A runner that repeats `words`: the token at position p of a sequence is words[p % size].
class NullRunner : public engine::Runner {
 public:
  using Clock = std::chrono::steady_clock;

  explicit NullRunner(std::vector<Token> words) : words_(std::move(words)) {}

  void launch(const StepPlan& plan) override {
    StepResult result{.step = plan.step};
    for (const Span& span : plan.spans) {
      auto& gained = result.tokens.emplace_back();
      if (span.sample) gained.push_back(word(span.begin + span.count));
    }
    result.drafts.resize(plan.spans.size());
    result.logprobs.resize(plan.spans.size());
    result.prompt_logprobs.resize(plan.spans.size());
    flying_.push_back(std::move(result));
  }

  StepResult wait(uint64_t) override {
    paused_.wait(true);
    const auto now = Clock::now();
    next_ = std::max(now, next_ + pace_.load());
    if (next_ > now) std::this_thread::sleep_until(next_);
    StepResult result = std::move(flying_.front());
    flying_.pop_front();
    return result;
  }

  // No step ends while paused.
  void pause(bool paused) {
    paused_ = paused;
    paused_.notify_all();
  }

  // The least time that a step takes; zero: none.
  void pace(std::chrono::microseconds step) { pace_ = step; }

  Token word(int position) const { return words_[static_cast<size_t>(position) % words_.size()]; }

 private:
  const std::vector<Token> words_;
  std::deque<StepResult> flying_;
  std::atomic<bool> paused_{false};
  std::atomic<std::chrono::microseconds> pace_{};
  Clock::time_point next_{};
};

// Runs the engine on a thread, as the real Llm does.
class NullEngine : public service::EnginePort {
 public:
  NullEngine(const sched::Limits& limits, std::vector<Token> words, std::shared_ptr<service::EventQueue> events)
      : cache_(limits.max_seqs * (limits.max_context / 64 + 1), 64, /*share_prefixes=*/true),
        scheduler_(limits, cache_),
        runner_(std::move(words)),
        engine_(
            scheduler_, runner_, inbox_,
            [this, events](std::vector<Event> batch) { deliver(*events, std::move(batch)); }, 2),
        thread_([this] { engine_.run(abort_); }) {}

  ~NullEngine() override {
    pause(false);
    abort_ = true;
    inbox_.close();
    thread_.join();
  }

  void submit(NewSequence sequence) override {
    board_.begin_work();
    inbox_.push(std::move(sequence));
  }
  void cancel(SeqId id) override { inbox_.push(Cancel{id}); }
  engine::EngineStats stats() const override { return board_.read(); }
  void pause(bool paused) { runner_.pause(paused); }
  void pace(std::chrono::microseconds step) { runner_.pace(step); }

 private:
  void deliver(service::EventQueue& events, std::vector<Event> batch) {
    const sched::SchedulerStats s = scheduler_.stats();
    board_.write({.running = s.running,
                  .waiting = s.waiting,
                  .blocks_total = cache_.num_blocks(),
                  .blocks_free = cache_.num_free(),
                  .steps = engine_.steps(),
                  .generation_tokens = s.generation_tokens});
    for (const Event& event : batch)
      if (event.finish != Finish::kNone) board_.end_work();
    if (!batch.empty()) events.push(std::move(batch));
  }

  kv::CacheIndex cache_;
  sched::Scheduler scheduler_;
  NullRunner runner_;
  Queue<Command> inbox_;
  engine::Engine engine_;
  engine::StatsBoard board_;
  std::atomic<bool> abort_{false};
  std::thread thread_;
};

}  // namespace skiff::bench
