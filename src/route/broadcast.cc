#include "route/broadcast.h"

#include <boost/asio/post.hpp>
#include <utility>

#include "base/json.h"
#include "route/forward.h"
#include "route/prober.h"
#include "serve/http/api_error.h"

namespace skiff::route {
namespace {

// The list of what was ended, in the answer of one backend; nothing where it has another form.
Json ended_by(const Told& told) {
  if (const auto body = parse_json(told.body, {.max_bytes = size_t{4} << 20, .max_depth = 8});
      body && body->is_object())
    if (const auto result = body->find("result"); result != body->end() && result->is_object())
      if (const auto list = result->find("aborted"); list != result->end() && list->is_array())
        return *list;
  return Json::array();
}

struct Round {
  std::string request_id;
  std::shared_ptr<http::HttpReply> reply;
  std::vector<Told> told;
  size_t awaited = 0;
};

void tell_all(RouterCore& core, http::HttpRequest request,
              const std::shared_ptr<http::HttpReply>& reply) {
  const auto round = std::make_shared<Round>();
  round->request_id = request.request_id;
  round->reply = reply;
  const auto body = std::make_shared<const std::string>(std::move(request.body));
  const auto backends = core.registry.all();
  if (backends.empty()) return reply->send(refusal(503, "no instance is known"));
  round->awaited = backends.size();
  for (const auto& backend : backends) {
    const std::string head = forwarded_head(request, backend->instance.authority(), body->size(),
                                            core.config.backend_admin_key);
    ask(core, backend, head, body, [round, url = backend->url](int status, std::string answer) {
      round->told.push_back({url, status, std::move(answer)});
      if (--round->awaited == 0) round->reply->send(joined_answer(round->request_id, round->told));
    });
  }
}

}  // namespace

http::HttpResponse joined_answer(const std::string& request_id, const std::vector<Told>& told) {
  Json ended = Json::array(), failed = Json::array();
  const Told* refused = nullptr;
  bool done = false, silent = true;
  for (const Told& one : told) {
    if (one.status == 200) {
      done = true;
      silent = silent && one.body.empty();
      for (Json& request : ended_by(one)) ended.push_back(std::move(request));
      continue;
    }
    if (one.status != 0 && !refused) refused = &one;
    failed.push_back(
        {{"url", one.url},
         {"why", one.status == 0 ? one.body : fmt::format("it answered {}", one.status)}});
  }
  if (!done && refused) return {.status = refused->status, .body = refused->body};
  if (!done) return refusal(502, "no instance has answered");
  if (silent && failed.empty()) return {.status = 200, .body = ""};
  return http::json_response({{"request_id", request_id},
                              {"status", "success"},
                              {"error_message", nullptr},
                              {"result", {{"aborted", ended}, {"failed", failed}}}});
}

std::vector<http::Route> broadcast_routes(RouterCore& core) {
  std::vector<http::Route> routes;
  // Servers look at the key, too: without admin keys of the router's own theirs decides.
  const http::Access access =
      core.config.admin_keys.empty() ? http::Access::kKey : http::Access::kAdmin;
  for (const char* path : {"/v1/abort_requests", "/abort_requests", "/inference/v1/abort_requests"})
    routes.push_back(
        {.method = "POST",
         .path = path,
         .handler =
             [&core](http::HttpRequest request, const std::shared_ptr<http::HttpReply>& reply) {
               const auto shared = std::make_shared<http::HttpRequest>(std::move(request));
               net::post(core.io,
                         [&core, shared, reply] { tell_all(core, std::move(*shared), reply); });
             },
         .access = access});
  return routes;
}

}  // namespace skiff::route
