#include "apps/draft_tokens.h"

#include "base/json.h"
#include "base/load_error.h"
#include "base/log.h"
#include "text/tokenizer.h"

namespace skiff::apps {

void check_draft_tokens(const std::string& served, const std::string& drafter) {
  const auto ours = text::load_tokenizer(served), theirs = text::load_tokenizer(drafter);
  if (!ours || !theirs) {
    spdlog::warn("--speculative-config: {}, so the draft model's tokens are not compared",
                 (ours ? theirs : ours).error().what);
    return;
  }
  const text::Tokenizer &a = **ours, &b = **theirs;
  if (a.vocab_size() != b.vocab_size())
    fail_load(
        "--speculative-config: the tokenizer in {} has {} tokens, that of the served model {}; a "
        "draft model must have the same tokens",
        drafter, b.vocab_size(), a.vocab_size());
  for (int token = 0; token < a.vocab_size(); ++token)
    if (a.piece(token) != b.piece(token) || a.is_special(token) != b.is_special(token))
      fail_load(
          "--speculative-config: token {} is \"{}\" in {} and \"{}\" in the served model; a draft "
          "model must have the same tokens",
          token, escaped(b.piece(token)), drafter, escaped(a.piece(token)));
}

}  // namespace skiff::apps
