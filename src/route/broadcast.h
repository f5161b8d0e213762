// route/broadcast.h -- what an operator tells all backends at once: which requests to end.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "route/core.h"
#include "serve/http/route_table.h"

namespace skiff::route {

// What one backend answered.
struct Told {
  std::string url;
  int status = 0;  // 0: it did not answer, and `body` says why
  std::string body;
};

// Makes one answer of those of all backends. Where one of them has done it, the answer is 200 with
// what all of them have ended, and names those that have not (empty where all of theirs are, as in
// vLLM's form); else it is the first answer that a
// backend gave, or 502.
http::HttpResponse joined_answer(const std::string& request_id, const std::vector<Told>& told);

// Returns the routes that end requests on whichever backend has them, for operators. `core` must
// outlive them.
std::vector<http::Route> broadcast_routes(RouterCore& core);

}  // namespace skiff::route
