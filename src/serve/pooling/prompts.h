// serve/pooling/prompts.h -- the prompts of a call: its inputs, cut where that was asked for, or
// its pairs of texts, joined as the model expects them.
#pragma once
#include <vector>

#include "base/result.h"
#include "serve/pooling/call.h"
#include "serve/service/pooled_model.h"

namespace skiff::pooling {

// The prompts of a call. Of pairs that a model of embeddings compares, the queries come first, then
// the documents; else there is one prompt for each document. Error::field is as in
// Service::prepare. Takes the texts out of the call, but for its documents.
Result<std::vector<service::PromptInput>> prompts_of(PoolingCall& call,
                                                     const service::PooledModel& model,
                                                     const service::Service& service);

// Returns the tokens of a text, at most `most`. Tokens at the end of the text are left out, and
// those that the tokenizer puts around it stay.
std::vector<Token> cut_text(const text::Tokenizer& tokenizer, std::string_view text,
                            bool add_special, size_t most);

}  // namespace skiff::pooling
