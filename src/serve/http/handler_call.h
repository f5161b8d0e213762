// serve/http/handler_call.h -- what the hooks of the server's user say of a request, and the call
// of its handler on the right thread. Private to the HTTP server.
#pragma once
#include <memory>

#include "serve/http/core.h"
#include "serve/http/exchange.h"
#include "serve/http/server.h"

namespace skiff::http {

// The thread for a request, of which the body may still be missing.
HttpLane lane_of(const HttpCore& core, const HttpRequest& request);

// Headers of the response to this request besides its own.
HttpHeaders headers_of(const HttpHooks& hooks, const HttpRequest& request);

// Calls the handler on a thread of that lane (kIo: here) with the request that waits in `exchange`;
// nothing happens if the client has left by then. A handler that throws, or that drops its reply
// without an answer, ends this request alone.
void call_handler(const std::shared_ptr<HttpCore>& core,
                  const std::shared_ptr<HttpExchange>& exchange, HttpLane lane);

}  // namespace skiff::http
