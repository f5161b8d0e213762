// draft/suffix.h -- drafts that follow the longest repeated end of the text.
#pragma once
#include <memory>

#include "draft/drafter.h"
#include "draft/settings.h"

namespace skiff::draft {

// Suffix decoding (Oliaro et al. 2024) over one sequence: of all ends of the text the longest that
// stood in it before is continued as it was there, with at most max_factor drafts for each of its
// tokens (of max_depth at most). Answers to others are not searched: what is drafted from them
// could be told by its timing. Texts above 2^18 tokens are not read further and get no drafts.
std::unique_ptr<Drafter> make_suffix(const Settings& settings);

}  // namespace skiff::draft
