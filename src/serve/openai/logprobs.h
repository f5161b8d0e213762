// serve/openai/logprobs.h -- log-probabilities in the shapes of the two OpenAI endpoints.
#pragma once
#include <vector>

#include "base/json_writer.h"
#include "message/request.h"
#include "text/tokenizer.h"

namespace skiff {

// A token's text; bytes that are no UTF-8 by themselves are written \xNN.
std::string token_text(const Tokenizer& tokenizer, Token token);

// {content: [{token, logprob, bytes, top_logprobs}], refusal}.
void write_chat_logprobs(const std::vector<PositionLogprobs>& positions, const Tokenizer& tokenizer,
                         JsonWriter& json);

// {tokens, token_logprobs, top_logprobs, text_offset} of the completions endpoint, piece by piece.
class CompletionLogprobs {
 public:
  // `with_top` false: top_logprobs is null, as when logprobs is 0.
  CompletionLogprobs(const Tokenizer& tokenizer, bool with_top)
      : tokenizer_(tokenizer), with_top_(with_top) {}
  // The first token of a prompt, which nothing predicts.
  void add_unpredicted(Token token) { added_.push_back({token, nullptr}); }
  // Borrowed until it is written.
  void add(const PositionLogprobs& position) {
    added_.push_back({position.chosen.token, &position});
  }
  bool empty() const { return added_.empty(); }
  // What was added since the last call. Offsets go on counting.
  void write(JsonWriter& json);

 private:
  struct Added {
    Token token;
    const PositionLogprobs* position;  // null: not predicted
  };
  void write_top(const PositionLogprobs& position, JsonWriter& json) const;

  const Tokenizer& tokenizer_;
  const bool with_top_;
  size_t offset_ = 0;  // characters
  std::vector<Added> added_;
};

// vLLM's prompt_logprobs: null for the first position, then {id: {logprob, rank, decoded_token}}.
void write_prompt_logprobs(const std::vector<PositionLogprobs>& positions,
                           const Tokenizer& tokenizer, JsonWriter& json);

}  // namespace skiff
