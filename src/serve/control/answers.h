// serve/control/answers.h -- what control endpoints answer in common, and their line in the log.
#pragma once
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "serve/http/server.h"
#include "serve/service/service.h"

namespace skiff::control {

// Returns FastDeploy's answer to a control request.
http::HttpResponse success(const http::HttpRequest& request, Json result);
// Returns the answer to one that failed, or that asks for what cannot be.
http::HttpResponse failure(const Error& error);
// Returns the requests that were ended, as objects with "req_id" and "generated_tokens".
Json aborted_json(const std::vector<service::Aborted>& aborted);
// Logs one line for a control request by which `aborted` requests were ended.
void log_control(const http::HttpRequest& request, size_t aborted);

}  // namespace skiff::control
