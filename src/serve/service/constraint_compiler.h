// serve/service/constraint_compiler.h -- constraints of requests, compiled once and kept.
#pragma once
#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/result.h"
#include "grammar/grammar.h"
#include "message/token_constraint.h"

namespace skiff::service {

// A constraint that knows what the masks of its answers have cost.
class MeasuredConstraint : public TokenConstraint {
 public:
  struct Work {
    double seconds = 0;
    uint64_t masks = 0;
  };
  // The work since the last call, with that of all copies for_choice(). Any thread.
  virtual Work take_work() const = 0;
  // The same constraint for one of `answers` to one request: failed() is that of this answer alone,
  // and its masks get their part of the fuel that all of them have in a step.
  virtual std::shared_ptr<const TokenConstraint> for_choice(int answers) const = 0;
};

// for_choice() of a constraint that is measured; any other constraint, and null, as it is.
std::shared_ptr<const TokenConstraint> for_choice(
    const std::shared_ptr<const TokenConstraint>& constraint, int answers);

// The name of a kind in metrics and logs: "json_schema".
const char* label_of(grammar::ConstraintKind kind);

// Thread-safe. Compiling is bounded work, for which the caller waits while a thread does it that
// leaves the processors to whatever else wants them; equal constraints that are asked for at the
// same time are compiled once. Refusals are kept, too; what compiling throws, for want of memory
// for instance, reaches all who wait for it, and nothing is kept of it.
class ConstraintCompiler {
 public:
  using Compiled = Result<std::shared_ptr<const grammar::Grammar>>;
  struct Options {
    bool space = true;              // whitespace between the tokens of JSON
    size_t max_bytes = 256u << 20;  // bounds what is kept, as far as it can be let go
    int max_waiting = 8;            // callers that compile or wait for another; more are refused
    // Compiles a constraint; where it is empty, grammar::compile() does.
    std::function<Compiled(const grammar::Constraint&, std::shared_ptr<const grammar::Vocabulary>)>
        compile = nullptr;
  };
  ConstraintCompiler(std::shared_ptr<const grammar::Vocabulary> vocabulary, const Options& options)
      : vocabulary_(std::move(vocabulary)), options_(options) {}

  // Returns a constraint for one request. Errors are those of grammar::compile; kExhausted: too
  // many constraints are being compiled.
  Result<std::shared_ptr<const MeasuredConstraint>> compile(grammar::Constraint constraint);
  // Returns the constraint of a TokenConstraint::source(), which another process has sent, with the
  // errors of compile().
  Result<std::shared_ptr<const MeasuredConstraint>> compile_source(std::string_view source);

 private:
  struct Entry {
    std::string key;
    std::shared_future<Compiled> result;
  };
  Compiled find_or_make(const grammar::Constraint& constraint);
  void make(const grammar::Constraint& constraint, const std::string& key,
            std::promise<Compiled>& promise);
  void trim();

  const std::shared_ptr<const grammar::Vocabulary> vocabulary_;
  const Options options_;
  std::mutex mutex_;
  // What follows is guarded by the mutex.
  std::list<Entry> entries_;  // the last used first
  std::unordered_map<std::string, std::list<Entry>::iterator> index_;
  int waiting_ = 0;
};

}  // namespace skiff::service
