// serve/responses/to_chat.h -- a request of OpenAI's Responses API as the body of a chat
// completion.
#pragma once
#include "base/json.h"
#include "base/result.h"

namespace skiff::responses {

// The server keeps no responses, so what refers to one is refused. Fields that the API does not
// have go along unchanged: they are Skiff's own (min_p, seed, ...), or unknown. Error::field names
// a field of `body`.
Result<OrderedJson> to_chat(const OrderedJson& body);

}  // namespace skiff::responses
