// draft/ngram.h -- drafts that repeat what stood behind the same tokens before.
#pragma once
#include <memory>

#include "draft/drafter.h"
#include "draft/settings.h"

namespace skiff::draft {

// Prompt lookup (Saxena 2023; LLMA, Yang et al. 2023): the last tokens of the text, max_ngram of
// them first and min_ngram last, are looked for earlier in it, in the reference, the prompt and the
// output, and what followed them there is drafted. Of several places the last one counts. While the
// text goes on as it did there, the same place is followed, since the match grows with each token.
std::unique_ptr<Drafter> make_ngram(const Settings& settings);

}  // namespace skiff::draft
