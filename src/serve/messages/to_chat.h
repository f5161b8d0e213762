// serve/messages/to_chat.h -- a request of Anthropic's Messages API as the body of a chat
// completion.
#pragma once
#include "base/json.h"
#include "base/result.h"

namespace skiff::messages {

// Fields that the API does not have go along unchanged: they are Skiff's own (min_p, seed, ...), or
// unknown. With `counts`, max_tokens may be absent. Error::field names a field of `body`.
Result<OrderedJson> to_chat(const OrderedJson& body, bool counts);

}  // namespace skiff::messages
