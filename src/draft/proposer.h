// draft/proposer.h -- the texts of all slots, and the drafts of what follows them.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "draft/methods.h"
#include "message/step.h"

namespace skiff::draft {

// Keeps the text of each slot as far as it is known, the request's reference before it. Memory
// grows with the texts; each call but open() takes a bounded time, whatever their length.
//
// Not thread-safe.
class Proposer {
 public:
  // CHECKs that settings.method is one of methods() and the other settings are in their ranges.
  explicit Proposer(const Settings& settings);
  // Starts a slot, or starts it again. Its text is read later, by read_on(); until then it has no
  // drafts. A sequence that is pooled gets none at all.
  void open(const OpenSlot& slot);
  // Reads on in the texts of opened slots, kReadOn tokens in all at most. Call it once a step while
  // the device computes.
  void read_on();
  // Appends what the slot has gained, and returns drafts of what follows, at most settings.tokens.
  // They begin with `guesses`, if there are any.
  std::vector<Token> next(int slot, std::span<const Token> gained, std::vector<Token> guesses = {});

  static constexpr int64_t kReadOn = 8192;

 private:
  struct Text {
    std::vector<Token> tokens;
    int64_t read = 0;  // leading tokens that the drafter has read
    std::unique_ptr<Drafter> drafter;
  };
  static void read(Text& text, int64_t most);

  const Settings settings_;
  const Method& method_;
  std::vector<Text> slots_;
  std::vector<size_t> unread_;  // slots that read_on() reads, in this order
};

}  // namespace skiff::draft
