// engine/fake_runner_testing.h -- for tests: a "model" whose keys and values are the tokens
// themselves and whose next token is a hash of the context, read back through the page tables. A
// block freed early, shared wrongly, rolled back badly or published too soon changes the text.
#pragma once
#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "engine/runner.h"
#include "sched/scheduler.h"

namespace skiff::engine {

// Returns the fake model's next token after `context`, in [1, 40].
inline Token fake_next(std::span<const Token> context, uint64_t seed) {
  uint64_t h = 1469598103934665603ull ^ seed;
  for (const Token t : context) h = (h ^ static_cast<uint64_t>(t)) * 1099511628211ull;
  return static_cast<Token>(1 + (h >> 20) % 40);
}

// Returns the log-probabilities that it gives `token` after `context`: an arbitrary function of
// both.
inline PositionLogprobs fake_logprobs(std::span<const Token> context, Token token, int top) {
  const auto best = fake_next(context, 99);
  PositionLogprobs out{.chosen = {token, -static_cast<float>(best)}, .rank = best, .top = {}};
  for (int i = 0; i < top; ++i) out.top.push_back({best + i, -static_cast<float>(i)});
  return out;
}

// Returns the vector that it makes of a pooled sequence: a function of all its tokens.
inline std::vector<float> fake_pooled(std::span<const Token> tokens) {
  return {static_cast<float>(fake_next(tokens, 7)), static_cast<float>(tokens.size())};
}

class FakeRunner : public Runner {
 public:
  struct Options {
    int num_blocks = 0, block_size = 0;
    sched::Limits limits;
    size_t depth = 1;
    bool drafts = false;  // propose drafts
    uint64_t seed = 1;
    int host_blocks = 0;
    double copy_cost = 0;  // time to copy a block, in units of the time to compute one
    // With `drafts`: how many at most, or exactly limits.chained_drafts, if that is not 0; and how
    // many of four are right.
    int most_drafts = 3, right = 3;
  };
  struct Counts {
    long steps = 0, rows = 0, drafted = 0, kept = 0, reopened = 0;
  };

  explicit FakeRunner(const Options& options)
      : options_(options),
        memory_(static_cast<size_t>(options.num_blocks * options.block_size), 0),
        host_(static_cast<size_t>(options.host_blocks * options.block_size), 0),
        slots_(static_cast<size_t>(options.limits.max_seqs)),
        rng_(options.seed),
        clock_(options.seed) {}

  // A step is computed at once, or as late as possible, so that premature changes to its blocks of
  // host memory show.
  void launch(const StepPlan& plan) override {
    launched_.push_back(plan);
    SKIFF_CHECK(launched_.size() + results_.size() <= options_.depth, "too many steps in flight");
    if (options_.host_blocks == 0 || rng_() % 2) catch_up(plan.step);
  }

  StepResult wait(uint64_t step) override {
    catch_up(step);
    load([step](const Load& load) { return load.step <= step; });
    SKIFF_CHECK(!results_.empty() && results_.begin()->first == step, "waits out of order");
    return std::move(results_.extract(step).mapped());
  }

  std::span<Token> host_block(int i) { return part(host_, i); }
  const Counts& counts() const { return counts_; }

 private:
  void catch_up(uint64_t step) {
    for (; !launched_.empty() && launched_.front().step <= step; launched_.pop_front())
      run(launched_.front());
  }

  // Carries out loads, in their order, up to the last one for which this holds: as late as StepPlan
  // allows it.
  struct Load {
    uint64_t step = 0;
    BlockCopy copy;
  };
  template <class F>
  void load(F must_be_done) {
    const auto last = std::find_if(loads_.rbegin(), loads_.rend(), must_be_done);
    for (auto left = loads_.rend() - last; left > 0; --left) {
      const BlockCopy copy = loads_.front().copy;
      loads_.pop_front();
      std::ranges::copy(host_block(copy.host), part(memory_, copy.block).begin());
    }
  }

  std::span<Token> part(std::vector<Token>& memory, int i) {
    const auto size = static_cast<size_t>(options_.block_size);
    SKIFF_CHECK((static_cast<size_t>(i) + 1) * size <= memory.size());
    return std::span(memory).subspan(static_cast<size_t>(i) * size, size);
  }

  void run(const StepPlan& plan) {
    check_limits(plan);
    for (const BlockCopy& copy : plan.saves) {
      load([&](const Load& load) { return load.copy.block == copy.block; });
      std::ranges::copy(part(memory_, copy.block), host_block(copy.host).begin());
    }
    for (const BlockCopy& copy : plan.loads) loads_.push_back({plan.step, copy});
    load([&](const Load& load) { return std::ranges::count(plan.pages, load.copy.block) > 0; });
    for (const OpenSlot& open : plan.opened) {
      counts_.reopened += open.history.size() > static_cast<size_t>(open.prompt_len);
      slots_.at(static_cast<size_t>(open.slot)) = {.open = open, .history = open.history};
    }
    StepResult result;
    result.step = plan.step;
    const Token* row = plan.tokens.data();
    for (size_t i = 0; i < plan.spans.size(); ++i) {
      compute(plan, i, row, result);
      row += plan.spans[i].count;
    }
    SKIFF_CHECK(row == plan.tokens.data() + plan.tokens.size());
    if (!result.pooled.empty()) result.pooled.resize(plan.spans.size());
    tell_time(plan, result);
    ++counts_.steps;
    results_[plan.step] = std::move(result);
  }

  void tell_time(const StepPlan& plan, StepResult& result) {
    if (options_.copy_cost == 0) return;
    const auto about = [&](double value) {
      return value * static_cast<double>(clock_() % 200) / 100;
    };
    const auto copies = static_cast<double>(plan.saves.size() + plan.loads.size());
    result.copy_seconds = about(copies * options_.copy_cost);
    result.seconds =
        result.copy_seconds + about(static_cast<double>(plan.tokens.size()) / options_.block_size);
  }

  struct Slot {
    OpenSlot open;
    std::vector<Token> history;  // as the sampler would know it
    int rows = 0;                // computed since the slot was opened
    std::vector<Token> drafts;   // behind its last step
    int refused = 0;             // drafts of that
    bool chained = false;        // whether that was chained
  };

  void check_limits(const StepPlan& plan) const {
    int rows = 0, logit_rows = 0;
    std::map<int, int> slot_uses;
    for (const Span& s : plan.spans) {
      SKIFF_CHECK(s.count >= 1 && s.begin + s.count <= options_.limits.max_context);
      SKIFF_CHECK(++slot_uses[s.slot] == 1, "slot {} stands twice", s.slot);
      rows += s.count;
      logit_rows += s.prompt_logprobs != kNoLogprobs ? s.count
                    : s.sample                       ? 1 + s.draft
                                                     : s.pool_logits;
    }
    SKIFF_CHECK(rows <= options_.limits.max_rows && logit_rows <= options_.limits.max_logit_rows);
    SKIFF_CHECK(rows == static_cast<int>(plan.tokens.size()));
  }

  // Finds out what only the device knows.
  static void look_up(Span& s, std::span<Token> rows, const Slot& slot) {
    if (std::exchange(s.after_drafts, false)) {
      SKIFF_CHECK(slot.chained);
      s.begin -= slot.refused;
    }
    for (size_t j = 0; j < rows.size(); ++j) {
      if (rows[j] != kOnDevice) continue;
      const auto known = static_cast<size_t>(s.count - s.draft);
      SKIFF_CHECK(j < known || slot.chained);
      rows[j] = j < known ? slot.history.back() : slot.drafts.at(j - known);
    }
  }

  // A step may be chained if the drafter has drafted behind the last one of each sequence. It
  // writes at the positions of further drafts.
  template <class At>
  void chain(const StepPlan& plan, const Span& s, Slot& slot, At at) const {
    const bool drafted = std::ssize(slot.drafts) == options_.limits.chained_drafts;
    if (plan.chained) {
      SKIFF_CHECK(drafted && s.sample && s.count == 1 + s.draft &&
                  s.prompt_logprobs == kNoLogprobs);
      SKIFF_CHECK(slot.open.params.logprobs == kNoLogprobs);
      for (int d = 0; d < options_.limits.chained_reach; ++d) at(s.begin + s.count + d) = 38;
    }
    slot.chained = plan.chained;
  }

  void compute(const StepPlan& plan, size_t i, const Token* first, StepResult& result) {
    Span s = plan.spans[i];
    Slot& slot = slots_.at(static_cast<size_t>(s.slot));
    std::vector<Token> row(first, first + s.count);
    look_up(s, row, slot);
    const auto pages =
        std::span(plan.pages)
            .subspan(static_cast<size_t>(plan.page_start[i]),
                     static_cast<size_t>(plan.page_start[i + 1] - plan.page_start[i]));
    const auto at = [&](int p) -> Token& {
      const int block = pages[static_cast<size_t>(p / options_.block_size)];
      const int place = block * options_.block_size + p % options_.block_size;
      return memory_.at(static_cast<size_t>(place));
    };
    chain(plan, plan.spans[i], slot, at);
    for (int j = 0; j < s.count; ++j) at(s.begin + j) = row[static_cast<size_t>(j)];
    counts_.rows += s.count;
    slot.rows += s.count;

    std::vector<Token> context;
    context.reserve(static_cast<size_t>(s.begin) + static_cast<size_t>(s.count));
    for (int p = 0; p < s.begin + s.count; ++p) context.push_back(at(p));
    auto& prompt = result.prompt_logprobs.emplace_back();
    if (s.prompt_logprobs != kNoLogprobs) prompt = report_prompt(s, context);

    auto& gained = result.tokens.emplace_back();
    auto& logprobs = result.logprobs.emplace_back();
    auto& drafts = result.drafts.emplace_back();
    if (s.pool) pool(s, slot, context, i, result);
    if (!s.sample) return;
    context.resize(context.size() - static_cast<size_t>(s.draft));
    SKIFF_CHECK(context == slot.history, "the cache and the slot remember different texts");
    for (int d = 0;; ++d) {
      const Token t = fake_next(context, slot.open.params.seed);
      gained.push_back(t);
      if (slot.open.params.logprobs != kNoLogprobs)
        logprobs.push_back(fake_logprobs(context, t, slot.open.params.logprobs));
      slot.history.push_back(t);
      if (d == s.draft || at(s.begin + s.count - s.draft + d) != t) break;
      context.push_back(t);
    }
    counts_.drafted += s.draft;
    counts_.kept += static_cast<long>(gained.size()) - 1;
    slot.refused = s.draft + 1 - static_cast<int>(gained.size());
    if (options_.drafts) slot.drafts = drafts = guess(slot);
  }

  static void pool(const Span& s, const Slot& slot, const std::vector<Token>& context, size_t i,
                   StepResult& result) {
    const Pooling& pooling = slot.open.pooling;
    SKIFF_CHECK(pooling && context == slot.history, "another text than its own is pooled");
    SKIFF_CHECK(pooling.may_reuse() || slot.rows == static_cast<int>(context.size()),
                "{} rows of {} were computed to be pooled", slot.rows, context.size());
    SKIFF_CHECK(pooling.logits == s.pool_logits);
    result.pooled.resize(i + 1);
    result.pooled[i] = fake_pooled(context);
  }

  std::vector<PositionLogprobs> report_prompt(const Span& s, std::span<const Token> context) {
    std::vector<PositionLogprobs> out;
    for (int j = 0; j < s.count; ++j) {
      const auto end = static_cast<size_t>(s.begin) + static_cast<size_t>(j) + 1;
      if (end == context.size() && s.sample) break;
      const Token next = end < context.size() ? context[end] : s.next;
      out.push_back(fake_logprobs(context.first(end), next, s.prompt_logprobs));
    }
    return out;
  }

  std::vector<Token> guess(const Slot& slot) {
    std::vector<Token> context = slot.history, out;
    const auto most = static_cast<uint64_t>(options_.most_drafts);
    const int chained = options_.limits.chained_drafts;
    for (auto left = chained > 0 ? uint64_t(chained) : rng_() % (most + 1); left > 0; --left) {
      const bool right = static_cast<int>(rng_() % 4) < options_.right;
      out.push_back(right ? fake_next(context, slot.open.params.seed) : 39);
      context.push_back(out.back());
    }
    return out;
  }

  Options options_;
  std::vector<Token> memory_;  // [num_blocks, block_size]
  std::vector<Token> host_;    // [host_blocks, block_size]
  std::deque<StepPlan> launched_;
  std::deque<Load> loads_;  // those that are not carried out yet
  std::vector<Slot> slots_;
  std::map<uint64_t, StepResult> results_;
  Counts counts_;
  std::mt19937_64 rng_, clock_;
};

}  // namespace skiff::engine
