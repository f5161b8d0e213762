// serve/service/reasoning_meter.h -- counts the tokens of reasoning in a reply that is written as
// one text, so that a budget holds there, too. Private to the service.
#pragma once
#include <memory>

#include "text/answer/answer_parser.h"
#include "text/detokenizer.h"

namespace skiff::service {

// One for each reply; not thread-safe. Borrows the tokenizer. `marks` are special tokens that the
// reply's text may leave out, and that begin or end the reasoning.
class ReasoningMeter {
 public:
  ReasoningMeter(const text::Tokenizer& tokenizer,
                 std::shared_ptr<const answer::AnswerOptions> options, SharedList<int32_t> marks)
      : text_(tokenizer, {.stops = {}, .shown = std::move(marks)}),
        parser_(std::move(options), /*seed=*/0) {}

  void push(int32_t token) {
    answer::AnswerEvents unread;
    parser_.push(text_.push(token), unread);
  }
  bool in_reasoning() const { return parser_.in_reasoning(); }
  int tokens() const { return parser_.reasoning_tokens(); }

 private:
  text::Detokenizer text_;
  answer::AnswerParser parser_;
};

}  // namespace skiff::service
