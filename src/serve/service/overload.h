// serve/service/overload.h -- refusals for want of room, which are made before a request's text is
// looked at: on an I/O thread, where nothing but the answer 429 may be made.
#pragma once
#include <optional>
#include <span>

#include "serve/front.h"
#include "serve/http/api_error.h"

namespace skiff {

// 429: --max-concurrency requests are under way.
ApiError too_many_requests(Front& front);
// 429 if these prompts would exceed --max-waiting-tokens. Without prompts: if no prompt at all
// would be let in.
std::optional<ApiError> refuse_waiting(Front& front, std::span<const Prepared> prompts);
// Whichever of the two would refuse any generation now.
std::optional<ApiError> refuse_when_full(Front& front);

}  // namespace skiff
