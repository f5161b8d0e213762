// serve/service/prepare_checks.h -- whether the values of a Request can be served. Private to
// prepare.cc.
#pragma once
#include <optional>
#include <vector>

#include "serve/service/prepare.h"

namespace skiff {

int vocab_of(const PrepareContext& context);

// Error::field is `field`; "input" stands for the prompt.
std::optional<Error> check_tokens(const char* field, const std::vector<Token>& tokens, int vocab);

// Numbers, lists and counts of log-probabilities: all that the prompts of a call have in common.
std::optional<Error> check_common(const Request& request, const PrepareContext& context);

// Resolves request.bad_words into request.params.
std::optional<Error> add_bad_words(Request& request, const PrepareContext& context);

// A reply that is no stream is held until it is complete, and log-probabilities are what makes it
// large: hundreds of bytes for a token that cost one step. `calls` are the prompts of one call, at
// least one.
std::optional<Error> check_reply(const std::vector<Prepared>& calls, bool streamed,
                                 const PrepareContext& context);

}  // namespace skiff
