// sample/verdict.h -- which drafts are kept by the rules that look at the most likely tokens.
#pragma once
#include <span>

#include "message/draft_check.h"

namespace skiff::sample {

// A row of logits and the draft behind it.
struct CheckedRow {
  Token drawn = 0, draft = 0;
  std::span<const Token> best;           // the most likely tokens, best first
  std::span<const float> best_logprobs;  // natural logarithms of their probabilities
};

// What the request of a sequence asks for.
struct DraftParams {
  float temperature = 1, top_p = 1;
  bool thinking = false;  // before the first row
};

// Returns how many of the drafts of one sequence are kept, the first ones of `rows`. Rules other
// than kTopP and kRelaxed keep those that were drawn.
int drafts_kept(const DraftCheck& check, const DraftParams& params,
                std::span<const CheckedRow> rows);

// Returns whether a thought has begun and not ended behind `token`, given that before it.
inline bool thinks(const DraftCheck& check, bool before, Token token) {
  return token == check.think_begin || (before && token != check.think_end);
}

}  // namespace skiff::sample
