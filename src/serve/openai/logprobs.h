// serve/openai/logprobs.h -- log-probabilities in the shapes of the two OpenAI endpoints.
#pragma once
#include <vector>

#include "base/json_writer.h"
#include "message/request.h"
#include "text/tokenizer.h"

namespace skiff::openai {

// How log-probabilities name tokens: by their text, or as "token_id:N", which no two share.
enum class TokenNames { kText, kIds };

// A token's text. If it is not valid UTF-8, bytes that are not printable ASCII become \xNN.
std::string token_text(const text::Tokenizer& tokenizer, Token token);

// Writes {content: [{token, logprob, bytes, top_logprobs}], refusal}.
void write_chat_logprobs(const std::vector<PositionLogprobs>& positions,
                         const text::Tokenizer& tokenizer, TokenNames names, JsonWriter& json);

// Writes FastDeploy's draft_logprobs in the same form. Each entry also has "position", the place of
// its token among those of the reply's logprobs.
void write_chat_draft_logprobs(const std::vector<DraftLogprobs>& drafts,
                               const text::Tokenizer& tokenizer, TokenNames names,
                               JsonWriter& json);

// Writes {tokens, token_logprobs, top_logprobs, text_offset} of the completions endpoint, piece by
// piece.
class CompletionLogprobs {
 public:
  // If `with_top` is false, top_logprobs is null, as OpenAI does if logprobs is 0.
  CompletionLogprobs(const text::Tokenizer& tokenizer, TokenNames names, bool with_top)
      : tokenizer_(tokenizer), names_(names), with_top_(with_top) {}
  // Adds the first token of a prompt, which has no log-probability.
  void add_unpredicted(Token token) { added_.push_back({token, nullptr}); }
  // Borrows `position` until write().
  void add(const PositionLogprobs& position) {
    added_.push_back({position.chosen.token, &position});
  }
  bool empty() const { return added_.empty(); }
  // Writes what was added since the last call. Offsets continue. `more` are members that follow.
  void write(JsonWriter& json, std::string_view more = {});

 private:
  struct Added {
    Token token;
    const PositionLogprobs* position;  // null: no log-probability
  };
  void write_top(const PositionLogprobs& position, JsonWriter& json) const;

  const text::Tokenizer& tokenizer_;
  const TokenNames names_;
  const bool with_top_;
  size_t offset_ = 0;  // characters
  std::vector<Added> added_;
};

// Returns the member "positions" of a completion's draft_logprobs: the places of the tokens among
// those of the reply's logprobs, of which the first `first` are of its prompt.
std::string positions_of(const std::vector<DraftLogprobs>& drafts, int first);

// Writes vLLM's prompt_logprobs: null for the first position, then {id: {logprob, rank,
// decoded_token}}.
void write_prompt_logprobs(const std::vector<PositionLogprobs>& positions,
                           const text::Tokenizer& tokenizer, JsonWriter& json);

}  // namespace skiff::openai
