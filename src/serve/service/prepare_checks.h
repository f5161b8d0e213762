// serve/service/prepare_checks.h -- checks whether the values of a Request can be served. Private
// to prepare.cc.
#pragma once
#include <optional>
#include <vector>

#include "serve/service/prepare.h"

namespace skiff::service {

int vocab_of(const PrepareContext& context);

// Error::field is `field`; "input" means the prompt.
std::optional<Error> check_tokens(const char* field, const std::vector<Token>& tokens, int vocab);

// Checks what all prompts of a call share: numbers, lists, counts of log-probabilities.
std::optional<Error> check_common(const Request& request, const PrepareContext& context);

// Resolves request.bad_words into request.params.
std::optional<Error> add_bad_words(Request& request, const PrepareContext& context);

// Reads request.reference, the text of the field "prediction", which may have as many tokens as the
// context.
std::optional<Error> add_reference(const Request& request, const PrepareContext& context,
                                   Prepared& prepared);

// Bounds the size of a reply. A reply that is not streamed is held until it is complete, and
// log-probabilities make it large: hundreds of bytes for each token. `calls` are the prompts of one
// call, at least one.
std::optional<Error> check_reply(const std::vector<Prepared>& calls, bool streamed,
                                 const PrepareContext& context);

}  // namespace skiff::service
