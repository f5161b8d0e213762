// apps/draft_tokens.h -- whether a draft model has the tokens of the model that it drafts for.
#pragma once
#include <string>

namespace skiff::apps {

// Compares the tokenizers of two folders: their sizes, and the text of every token. Throws a
// LoadError that names the first difference. Where one of the folders has no tokenizer, nothing is
// compared and a warning says so.
void check_draft_tokens(const std::string& served, const std::string& drafter);

}  // namespace skiff::apps
