// serve/service/answer_split.h -- how the reply to a request is split into reasoning, content and
// calls. Private to the service.
#pragma once
#include <string_view>
#include <vector>

#include "serve/service/service.h"

namespace skiff::service {

// Immutable; thread-safe.
class AnswerSplit {
 public:
  AnswerSplit(const answer::AnswerFormats& formats, const text::Tokenizer& tokenizer);

  // Sets `prepared.answer` and `prepared.shown`, from what the request asks for and what the
  // model's format has. `prepared.prompt` says whether the reply starts inside the reasoning.
  void set_up(const Request& request, Prepared& prepared) const;

 private:
  void bound_reasoning(const Request& request, answer::AnswerOptions& options,
                       Prepared& prepared) const;
  bool prompt_reasons(const Request& request, const std::vector<Token>& prompt) const;

  const answer::AnswerFormats formats_;
  const text::Tokenizer& tokenizer_;
  // Special tokens that are marks, or parts of them.
  std::vector<Token> reasoning_tokens_, call_tokens_;
  std::vector<Token> reasoning_end_;  // the mark that ends the reasoning, on lines of its own
};

}  // namespace skiff::service
