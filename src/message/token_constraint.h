// message/token_constraint.h -- what the engine sees of a constraint on the tokens of an answer.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace skiff {

// Follows the tokens of one answer. Used by one thread at a time.
class TokenFollower {
 public:
  virtual ~TokenFollower() = default;
  // The answer has gained a token.
  virtual void accept(int32_t token) = 0;
  // Sets bit t of word t / 32 for each token that may come next; at least one. After an answer that
  // cannot go on, only tokens that end it.
  virtual void fill(std::span<uint32_t> mask) = 0;
};

// One constraint of one request. Immutable seen from outside; safe from any thread.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // A follower of an answer that has no tokens yet. The constraint need not outlive it.
  virtual std::unique_ptr<TokenFollower> follow() const = 0;
  // Words of a mask: one bit for each logit.
  virtual size_t mask_words() const = 0;
  // Returns whether an answer was cut off because its constraint could not be followed: a token
  // came that was not allowed, or the work for a mask exceeded its bound.
  virtual bool failed() const = 0;
  // The bytes from which a process with the same vocabulary makes the same constraint, which it
  // must when it draws the same tokens. They are all of it that message/wire.h sends.
  virtual std::string source() const = 0;
};

// A constraint that has come from another process as its source, and is none yet: nobody can follow
// it.
class SentConstraint final : public TokenConstraint {
 public:
  explicit SentConstraint(std::string source) : source_(std::move(source)) {}
  std::unique_ptr<TokenFollower> follow() const override { return nullptr; }
  size_t mask_words() const override { return 0; }
  bool failed() const override { return false; }
  std::string source() const override { return source_; }

 private:
  std::string source_;
};

}  // namespace skiff
