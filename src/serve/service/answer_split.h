// serve/service/answer_split.h -- how the reply to a request is split into reasoning, content and
// calls. Private to the service.
#pragma once
#include <string_view>
#include <vector>

#include "serve/service/service.h"

namespace skiff::service {

// Whether a reply reasons before it answers.
enum class Reasoning {
  kNone,
  kMay,     // it may begin with the mark that opens the reasoning
  kInside,  // the prompt has opened it
};

// Immutable; thread-safe.
class AnswerSplit {
 public:
  // `chat_template` may be null.
  AnswerSplit(const answer::AnswerFormats& formats, const text::Tokenizer& tokenizer,
              const text::ChatTemplate* chat_template);

  // Sets `prepared.answer` and `prepared.shown`, from what the request asks for and what the
  // model's format has. `prepared.prompt` says whether the reply starts inside the reasoning.
  void set_up(const Request& request, Prepared& prepared) const;

  // How a chat's reply to `prompt` starts, whether or not its reasoning is separated. To be asked
  // after set_up(), which may close the reasoning.
  Reasoning reasoning(const Request& request, const std::vector<Token>& prompt) const;
  const answer::AnswerFormats& formats() const { return formats_; }
  bool has_token(std::string_view text) const { return tokenizer_.find(text).has_value(); }

 private:
  std::string tail(const std::vector<Token>& prompt) const;
  void meter_reasoning(const Request& request, Prepared& prepared) const;
  void bound_reasoning(const Request& request, answer::AnswerOptions& options,
                       Prepared& prepared) const;
  bool prompt_reasons(const Request& request, const std::vector<Token>& prompt) const;

  const answer::AnswerFormats formats_;
  const text::Tokenizer& tokenizer_;
  const bool off_by_default_;  // the chat template's prompts ask for no reasoning
  // Special tokens that are marks, or parts of them.
  std::vector<Token> reasoning_tokens_, call_tokens_;
  std::vector<Token> reasoning_end_;  // the mark that ends the reasoning, on lines of its own
};

}  // namespace skiff::service
