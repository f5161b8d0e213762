// serve/openai_logprobs.h -- log-probabilities in the shapes of the two OpenAI endpoints.
#pragma once
#include <vector>

#include "base/json.h"
#include "message/request.h"
#include "text/tokenizer.h"

namespace skiff {

// A token's text; bytes that are no UTF-8 by themselves are written \xNN.
std::string token_text(const Tokenizer& tokenizer, Token token);

// {content: [{token, logprob, bytes, top_logprobs}], refusal}.
Json chat_logprobs(const std::vector<PositionLogprobs>& positions, const Tokenizer& tokenizer);

// {tokens, token_logprobs, top_logprobs, text_offset} of the completions endpoint, piece by piece.
class CompletionLogprobs {
 public:
  // `with_top` false: top_logprobs is null, as when logprobs is 0.
  CompletionLogprobs(const Tokenizer& tokenizer, bool with_top);
  // The first token of a prompt, which nothing predicts.
  void add_unpredicted(Token token);
  void add(const PositionLogprobs& position);
  bool empty() const { return tokens_.empty(); }
  // What was added since the last call. Offsets go on counting.
  Json take();

 private:
  void add_token(Token token, Json logprob, Json top);
  const Tokenizer& tokenizer_;
  const bool with_top_;
  size_t offset_ = 0;  // characters
  Json tokens_ = Json::array(), values_ = Json::array(), top_ = Json::array(),
       offsets_ = Json::array();
};

// vLLM's prompt_logprobs: null for the first position, then {id: {logprob, rank, decoded_token}}.
Json prompt_logprobs_json(const std::vector<PositionLogprobs>& positions,
                          const Tokenizer& tokenizer);

}  // namespace skiff
