#include "serve/service/constraint_compiler.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <tuple>
#include <utility>

namespace skiff::service {
namespace {

// The masks that were made for one request, and the time that they took. Its choices, each of which
// has a copy of the constraint, count together.
struct MaskCount {
  std::atomic<uint64_t> masks{0}, nanoseconds{0};
};
struct Progress {
  explicit Progress(std::shared_ptr<MaskCount> count) : count(std::move(count)) {}
  const std::shared_ptr<MaskCount> count;
  std::atomic<bool> failed{false};
};

class MatcherFollower : public TokenFollower {
 public:
  MatcherFollower(std::shared_ptr<const grammar::Grammar> grammar,
                  std::shared_ptr<Progress> progress, int answers)
      : matcher_(std::move(grammar), answers), progress_(std::move(progress)) {}

  // After the end, steps that were in flight may draw once more; nobody reads these tokens.
  void accept(int32_t token) override {
    if (ended_) return;
    if (!matcher_.accept(token)) fail();
    ended_ = ended_ || matcher_.has_ended();
  }
  void fill(std::span<uint32_t> mask) override {
    const auto begin = std::chrono::steady_clock::now();
    fill_mask(mask);
    const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - begin;
    progress_->count->nanoseconds += static_cast<uint64_t>(taken.count());
    ++progress_->count->masks;
  }

 private:
  void fill_mask(std::span<uint32_t> mask) {
    if (!ended_ && matcher_.fill(mask)) return;
    if (!ended_) fail();
    for (const int32_t end : matcher_.grammar().vocabulary().ends())
      mask[static_cast<size_t>(end) / 32] |= 1u << (static_cast<uint32_t>(end) % 32);
  }
  void fail() {
    ended_ = true;
    progress_->failed = true;
  }
  grammar::Matcher matcher_;
  std::shared_ptr<Progress> progress_;
  bool ended_ = false;
};

class GrammarConstraint : public MeasuredConstraint {
 public:
  GrammarConstraint(std::shared_ptr<const grammar::Grammar> grammar, int answers,
                    std::shared_ptr<MaskCount> count = std::make_shared<MaskCount>())
      : grammar_(std::move(grammar)),
        answers_(answers),
        progress_(std::make_shared<Progress>(std::move(count))) {}
  std::string source() const override {
    grammar::Constraint constraint = grammar_->constraint();
    constraint.answers = answers_;
    return constraint_source(constraint);
  }
  std::unique_ptr<TokenFollower> follow() const override {
    return std::make_unique<MatcherFollower>(grammar_, progress_, answers_);
  }
  size_t mask_words() const override { return grammar_->vocabulary().mask_words(); }
  bool failed() const override { return progress_->failed; }
  Work take_work() const override {
    MaskCount& count = *progress_->count;
    return {.seconds = 1e-9 * static_cast<double>(count.nanoseconds.exchange(0)),
            .masks = count.masks.exchange(0)};
  }
  std::shared_ptr<const TokenConstraint> for_choice(int answers) const override {
    return std::make_shared<GrammarConstraint>(grammar_, answers, progress_->count);
  }

 private:
  std::shared_ptr<const grammar::Grammar> grammar_;
  const int answers_;
  std::shared_ptr<Progress> progress_;
};

// Returns what `work` returns, or throws what it throws. A thread cannot take back that it is nice
// to others, so each piece of work has one of its own, some tens of microseconds.
template <class Work>
auto nicely(const Work& work) {
  constexpr int kNice = 10;  // it gets a tenth of a processor that a step wants, too
  std::packaged_task<decltype(work())()> task([&work] {
    pthread_setname_np(pthread_self(), "compile");
    std::ignore = nice(kNice);  // on Linux, this thread alone
    return work();
  });
  auto result = task.get_future();
  std::thread(std::move(task)).join();
  return result.get();
}

bool is_ready(const std::shared_future<Result<std::shared_ptr<const grammar::Grammar>>>& result) {
  return result.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace

std::shared_ptr<const TokenConstraint> for_choice(
    const std::shared_ptr<const TokenConstraint>& constraint, int answers) {
  const auto* measured = dynamic_cast<const MeasuredConstraint*>(constraint.get());
  return measured ? measured->for_choice(answers) : constraint;
}

const char* label_of(grammar::ConstraintKind kind) {
  using enum grammar::ConstraintKind;
  switch (kind) {
    case kJsonObject:
      return "json_object";
    case kJsonSchema:
      return "json_schema";
    case kRegex:
      return "regex";
    case kChoice:
      return "choice";
    case kGrammar:
      return "grammar";
    case kStructuralTag:
      return "structural_tag";
  }
  return "other";
}

Result<std::shared_ptr<const MeasuredConstraint>> ConstraintCompiler::compile(
    grammar::Constraint constraint) {
  if (!options_.space) constraint.no_whitespace = true;
  const int answers = std::exchange(constraint.answers, 1);  // it compiles to the same
  const Compiled compiled = find_or_make(constraint);
  if (!compiled) return compiled.error();
  return std::shared_ptr<const MeasuredConstraint>(
      std::make_shared<GrammarConstraint>(*compiled, answers));
}

Result<std::shared_ptr<const MeasuredConstraint>> ConstraintCompiler::compile_source(
    std::string_view source) {
  auto constraint = grammar::read_constraint_source(source);
  if (!constraint) return constraint.error();
  return compile(std::move(*constraint));
}

ConstraintCompiler::Compiled ConstraintCompiler::find_or_make(
    const grammar::Constraint& constraint) {
  const std::string key = constraint_source(constraint);
  std::promise<Compiled> promise;
  std::shared_future<Compiled> result;
  bool mine = false;
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = index_.find(key); known != index_.end()) {
      entries_.splice(entries_.begin(), entries_, known->second);
      result = known->second->result;
      if (is_ready(result)) return result.get();
    }
    if (waiting_ >= options_.max_waiting)
      return Error{Code::kExhausted, "too many constraints are being compiled; try again"};
    if (!result.valid()) {
      mine = true;
      result = promise.get_future().share();
      std::list<Entry> made;
      made.push_front({key, result});
      index_.emplace(key, made.begin());
      entries_.splice(entries_.begin(), made);
    }
    ++waiting_;
  }
  if (mine) make(constraint, key, promise);
  result.wait();
  {
    const std::lock_guard lock(mutex_);
    --waiting_;
    if (mine) trim();
  }
  return result.get();
}

// Whoever finds an entry that is ready reads it, so one that has failed is gone before it is ready.
void ConstraintCompiler::make(const grammar::Constraint& constraint, const std::string& key,
                              std::promise<Compiled>& promise) {
  try {
    promise.set_value(nicely([&] {
      return options_.compile ? options_.compile(constraint, vocabulary_)
                              : grammar::compile(constraint, vocabulary_);
    }));
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      const auto entry = index_.find(key);
      entries_.erase(entry->second);
      index_.erase(entry);
    }
    promise.set_exception(std::current_exception());
  }
}

// Lets go of what was not used for longest. What requests still use stays with them.
void ConstraintCompiler::trim() {
  constexpr size_t kMaxEntries = 1024, kEntryBytes = 256;
  size_t bytes = 0, count = 0;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    bytes += 2 * entry->key.size() + kEntryBytes;
    const bool ready = is_ready(entry->result);
    if (ready && entry->result.get()) bytes += (*entry->result.get())->bytes_used();
    const bool keep = !ready || (bytes <= options_.max_bytes && ++count <= kMaxEntries);
    if (keep) {
      ++entry;
      continue;
    }
    index_.erase(entry->key);
    entry = entries_.erase(entry);
  }
}

}  // namespace skiff::service
