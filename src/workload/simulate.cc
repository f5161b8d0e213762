#include "workload/simulate.h"

#include <algorithm>
#include <cmath>
#include <deque>

#include "engine/engine.h"

namespace skiff::workload {
namespace {

// The only place where simulated time passes: steps follow each other on the device, and waiting
// for one advances the clock.
class TimedRunner : public engine::Runner {
 public:
  TimedRunner(const StepTime& time, double& now) : time_(time), now_(now) {}

  void launch(const StepPlan& plan) override {
    const double seconds = time_.seconds(plan);
    free_at_ = std::max(free_at_, now_) + seconds;
    last_ = seconds;
    busy_ += seconds;
    StepResult result{.step = plan.step};
    for (const Span& span : plan.spans)
      result.tokens.push_back(span.sample ? std::vector<Token>{0} : std::vector<Token>{});
    result.drafts.resize(plan.spans.size());
    result.logprobs.resize(plan.spans.size());
    result.prompt_logprobs.resize(plan.spans.size());
    flying_.emplace_back(free_at_, std::move(result));
  }

  StepResult wait(uint64_t) override {
    now_ = std::max(now_, flying_.front().first);
    StepResult result = std::move(flying_.front().second);
    flying_.pop_front();
    return result;
  }

  double busy() const { return busy_; }
  // When the engine plans the step after the last one launched (engine/step_pacer.h).
  double plan_at() const { return free_at_ - engine::StepPacer::kLead * last_; }

 private:
  const StepTime& time_;
  double& now_;
  double free_at_ = 0, last_ = 0, busy_ = 0;  // when all launched steps will have ended; their last
  std::deque<std::pair<double, StepResult>> flying_;
};

class Clockwork {
 public:
  Clockwork(const SimulationSetup& setup, const std::vector<TracedRequest>& requests)
      : setup_(setup),
        requests_(requests),
        cache_(setup.num_blocks, setup.block_size, /*share_prefixes=*/true),
        scheduler_(setup.limits, cache_),
        runner_(setup.time, now_),
        engine_(
            scheduler_, runner_, inbox_, [this](const std::vector<Event>& events) { hear(events); },
            setup.depth) {}

  Simulation run() {
    out_.requests.resize(requests_.size());
    for (size_t next = 0; next < requests_.size() || !engine_.idle();) {
      if (engine_.idle() && next < requests_.size()) now_ = std::max(now_, requests_[next].at);
      if (plans_late_ && !engine_.idle()) now_ = std::max(now_, runner_.plan_at());
      while (next < requests_.size() && requests_[next].at <= now_) submit(next++);
      engine_.step();
    }
    out_.seconds = now_;
    out_.busy = runner_.busy();
    out_.steps = engine_.steps();
    out_.preemptions = scheduler_.stats().preemptions;
    return std::move(out_);
  }

 private:
  void submit(size_t i) {
    TracedRequest request = requests_[i];
    request.input = std::min(request.input, setup_.limits.max_context - 1);
    out_.requests[i] = {.arrived = request.at, .input = request.input};
    NewSequence sequence;
    sequence.id = i;
    sequence.prompt = prompt_of(request, i, 1 << 20);
    sequence.stop.max_tokens = request.output;
    inbox_.push(std::move(sequence));
  }

  void hear(const std::vector<Event>& events) {
    for (const Event& event : events) {
      SimulatedRequest& request = out_.requests[event.seq];
      if (event.admitted) request.cached = event.cached;
      if (!event.tokens.empty() && request.output == 0) request.first_token = now_;
      request.output += static_cast<int>(event.tokens.size());
      if (event.finish != Finish::kNone) request.finished = now_;
      request.refused |= event.finish == Finish::kExhausted;
    }
  }

  const SimulationSetup& setup_;
  const std::vector<TracedRequest>& requests_;
  const bool plans_late_ = setup_.depth > 1 && setup_.limits.policy.cost.known();
  double now_ = 0;
  kv::CacheIndex cache_;
  sched::Scheduler scheduler_;
  TimedRunner runner_;
  Queue<Command> inbox_;
  engine::Engine engine_;
  Simulation out_;
};

}  // namespace

double StepTime::seconds(const StepPlan& plan) const {
  if (others.known()) return (plan.only_decodes() ? decodes : others).seconds(plan);
  double rows = 0, pairs = 0, kv = 0;
  for (const Span& span : plan.spans) {
    rows += span.count;
    pairs += span.count * (span.begin + 0.5 * (span.count + 1));
    kv += span.begin + span.count;
  }
  const double compute = (rows * flop_per_row + pairs * flop_per_pair) / flops;
  const double memory = (weight_bytes + kv * kv_bytes) / bandwidth;
  return fixed + std::max(compute, memory);
}

sched::StepCost measured_cost(const StepTime& time, int max_rows, int doubling) {
  if (time.others.known()) return time.others;
  std::vector<sched::StepCost::Point> points;
  const auto add = [&](int rows) {
    const double compute = rows * time.flop_per_row / time.flops;
    points.push_back({rows, time.fixed + std::max(compute, time.weight_bytes / time.bandwidth)});
  };
  for (int rows = 1; rows < max_rows; rows *= 2) add(rows);
  add(max_rows);
  return {std::move(points), {.doubling = doubling, .seconds = time.kv_bytes / time.bandwidth}};
}

Simulation simulate(const SimulationSetup& setup, const std::vector<TracedRequest>& requests) {
  return Clockwork(setup, requests).run();
}

double percentile(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(p * static_cast<double>(values.size())));
  const auto at =
      values.begin() + static_cast<long>(std::clamp<size_t>(rank, 1, values.size()) - 1);
  std::ranges::nth_element(values, at);
  return *at;
}

}  // namespace skiff::workload
