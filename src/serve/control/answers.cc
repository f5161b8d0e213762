#include "serve/control/answers.h"

#include "base/log.h"
#include "serve/http/api_error.h"

namespace skiff::control {

http::HttpResponse success(const http::HttpRequest& request, Json result) {
  return http::json_response({{"request_id", request.request_id},
                              {"status", "success"},
                              {"error_message", nullptr},
                              {"result", std::move(result)}});
}

http::HttpResponse failure(const Error& error) {
  const int status = error.code == Code::kInvalid       ? 400
                     : error.code == Code::kUnsupported ? 501
                     : error.code == Code::kCancelled   ? 503
                                                        : 500;
  http::ApiError out = http::api_error(status, error.what);
  out.param = error.field;
  return http::error_response(out);
}

Json aborted_json(const std::vector<service::Aborted>& aborted) {
  Json list = Json::array();
  for (const service::Aborted& one : aborted)
    list.push_back({{"req_id", one.id}, {"generated_tokens", one.generated}});
  return list;
}

void log_control(const http::HttpRequest& request, size_t aborted) {
  spdlog::info("control: {} {}, {} requests ended, id={}", request.method, request.path, aborted,
               escaped(request.request_id));
}

}  // namespace skiff::control
