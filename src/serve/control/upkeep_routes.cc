#include "serve/control/upkeep_routes.h"

#include <functional>
#include <memory>

#include "base/log.h"
#include "serve/control/answers.h"
#include "serve/control/one_task.h"
#include "serve/control/upkeep_query.h"
#include "serve/http/api_error.h"
#include "serve/openai/body.h"

namespace skiff::control {
namespace {

using http::HttpRequest;
using http::HttpResponse;
using service::Upkeep;

// Work that was understood, to be done on a thread of its own.
using Task = std::function<HttpResponse(Upkeep&)>;
// What a request asks for, or why it is refused.
using Wish = std::variant<Task, HttpResponse>;

Json parts_json(engine::Parts parts) {
  Json names = Json::array();
  if (parts.weights) names.push_back("weight");
  if (parts.kv) names.push_back("kv_cache");
  return names;
}

Json state_json(Upkeep& upkeep) {
  const engine::WeightsState weights = upkeep.weights();
  return {{"is_sleeping", upkeep.absent().any()},
          {"absent", parts_json(upkeep.absent())},
          {"weights_version", weights.version},
          {"weights_path", weights.folder},
          {"weights_updates", weights.updates}};
}

Json update_json(const service::Updated& updated) {
  const engine::WeightsState& weights = updated.weights;
  Json json = {{"version", weights.version},
               {"path", weights.folder},
               {"updates", weights.updates},
               {"aborted", aborted_json(updated.aborted)}};
  if (!weights.digest) return json;
  json["checksum"] = weights.digest->total;
  json["tensor_checksums"] = weights.digest->tensors;
  return json;
}

Wish sleep(const HttpRequest& request) {
  const auto query = read_upkeep_query(request.query);
  if (!query) return failure(query.error());
  return [request, query = *query](Upkeep& upkeep) {
    auto slept = upkeep.sleep(query.parts, query.ending);
    if (!slept) return failure(slept.error());
    log_control(request, slept->aborted.size());
    Json result = state_json(upkeep);
    result["released_bytes"] = {{"weight", slept->given.weights}, {"kv_cache", slept->given.kv}};
    result["aborted"] = aborted_json(slept->aborted);
    return success(request, std::move(result));
  };
}

Wish wakeup(const HttpRequest& request) {
  const auto query = read_upkeep_query(request.query);
  if (!query) return failure(query.error());
  return [request, parts = query->parts](Upkeep& upkeep) {
    const Status done = upkeep.wake(parts);
    if (!done) return failure(done.error());
    log_control(request, 0);
    return success(request, state_json(upkeep));
  };
}

Wish update_weights(const HttpRequest& request) {
  const auto query = read_upkeep_query(request.query);
  if (!query) return failure(query.error());
  const auto body = openai::read_body(request);
  if (const auto* error = std::get_if<http::ApiError>(&body)) return http::error_response(*error);
  const auto update = read_update(*std::get<JsonOwner<OrderedJson>>(body));
  if (!update) return failure(update.error());
  return [request, update = *update, ending = query->ending](Upkeep& upkeep) {
    auto updated = upkeep.update(update, ending);
    if (!updated) return failure(updated.error());
    log_control(request, updated->aborted.size());
    return success(request, update_json(*updated));
  };
}

// FastDeploy's older pair answers with text, and everything that goes wrong with a 404.
HttpResponse text_answer(const Status& status) {
  if (status) return {.status = 200, .body = "", .content_type = "text/plain; charset=utf-8"};
  return {.status = 404,
          .body = status.error().what + "\n",
          .content_type = "text/plain; charset=utf-8"};
}

Wish clear_load_weight(const HttpRequest& request) {
  return [request](Upkeep& upkeep) {
    const auto slept = upkeep.sleep({.weights = true, .kv = true}, {});
    if (!slept) return text_answer(slept.error());
    log_control(request, slept->aborted.size());
    return text_answer(ok());
  };
}

Wish update_model_weight(const HttpRequest& request) {
  return [request](Upkeep& upkeep) {
    const Status done = upkeep.wake({.weights = true, .kv = true}, /*renamed=*/true);
    if (done) log_control(request, 0);
    return text_answer(done);
  };
}

struct Entry {
  const char* method;
  const char* path;
  Wish (*read)(const HttpRequest&);
  bool plain = false;  // refusals are text with a 404
};

constexpr Entry kEntries[] = {
    {"POST", "/v1/sleep", sleep},
    {"POST", "/v1/wakeup", wakeup},
    {"POST", "/v1/update_weights", update_weights},
    {"POST", "/sleep", sleep},
    {"POST", "/wakeup", wakeup},
    {"POST", "/wake_up", wakeup},  // vLLM's
    {"POST", "/update_weights", update_weights},
    {"GET", "/clear_load_weight", clear_load_weight, true},
    {"GET", "/update_model_weight", update_model_weight, true},
};

HttpResponse absent(const Entry& entry) {
  const std::string why =
      fmt::format("{}: start the server with --dynamic-load-weight", entry.path);
  if (entry.plain) return text_answer(Error{Code::kUnsupported, why});
  return http::error_response(http::api_error(501, why));
}

HttpResponse busy(const Entry& entry) {
  const std::string why = fmt::format(
      "{}: another change of the model's memory is under way; ask again when it is done",
      entry.path);
  if (entry.plain) return text_answer(Error{Code::kCancelled, why});
  return http::error_response(http::api_error(409, why));
}

}  // namespace

std::vector<http::Route> upkeep_routes(Upkeep* upkeep) {
  std::vector<http::Route> routes;
  const auto task = std::make_shared<OneTask>();
  for (const Entry& entry : kEntries)
    routes.push_back(
        {.method = entry.method,
         .path = entry.path,
         .handler =
             [upkeep, task, &entry](const HttpRequest& request,
                                    const std::shared_ptr<http::HttpReply>& reply) {
               if (upkeep == nullptr) return reply->send(absent(entry));
               Wish wish = entry.read(request);
               if (auto* refusal = std::get_if<HttpResponse>(&wish))
                 return reply->send(std::move(*refusal));
               const bool begun = task->begin([upkeep, reply, work = std::get<Task>(wish)] {
                 return [reply, response = work(*upkeep)] { reply->send(response); };
               });
               if (!begun) reply->send(busy(entry));
             },
         .access = http::Access::kAdmin});
  const auto state = [upkeep](const HttpRequest&, const auto& reply) {
    reply->send(http::json_response(upkeep ? state_json(*upkeep) : Json{{"is_sleeping", false}}));
  };
  for (const char* path : {"/is_sleeping", "/v1/is_sleeping"})
    routes.push_back(
        {.method = "GET", .path = path, .handler = state, .access = http::Access::kAdmin});
  return routes;
}

}  // namespace skiff::control
