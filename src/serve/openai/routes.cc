#include "serve/openai/generation.h"
#include "serve/protocols.h"

namespace skiff {
namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";

// Clients written for vLLM and FastDeploy read it; all of it is as if there were no permissions.
Json permission_json(const Front& front, const std::string& name) {
  return {{"id", "modelperm-" + name},
          {"object", "model_permission"},
          {"created", front.started},
          {"allow_create_engine", false},
          {"allow_sampling", true},
          {"allow_logprobs", true},
          {"allow_search_indices", false},
          {"allow_view", true},
          {"allow_fine_tuning", false},
          {"organization", "*"},
          {"group", nullptr},
          {"is_blocking", false}};
}

Json model_json(const Front& front, const std::string& name) {
  return {{"id", name},
          {"object", "model"},
          {"created", front.started},
          {"owned_by", "skiff"},
          {"root", front.config.model_path},
          {"parent", nullptr},
          {"max_model_len", front.service.max_model_len()},
          {"permission", Json::array({permission_json(front, name)})}};
}

// The folder's path is a second name where the owner gave none; listing it would show one model as
// two.
bool is_listed(const Front& front, const std::string& name) {
  return name == front.config.model_names.front() || name != front.config.model_path;
}

HttpResponse list_models(const Front& front) {
  Json data = Json::array();
  for (const std::string& name : front.config.model_names)
    if (is_listed(front, name)) data.push_back(model_json(front, name));
  return json_response({{"object", "list"}, {"data", std::move(data)}});
}

HttpResponse one_model(const Front& front, const std::string& name) {
  for (const std::string& known : front.config.model_names)
    if (known == name) return json_response(model_json(front, name));
  return error_response(unknown_model(name, front.config.model_names.front()));
}

}  // namespace

std::vector<Route> openai_routes(Front& front) {
  const auto generation = [&front](Endpoint endpoint) {
    return [&front, endpoint](HttpRequest request, std::shared_ptr<HttpReply> reply) {
      generate(front, endpoint, std::move(request), std::move(reply));
    };
  };
  return {
      {"POST", "/v1/chat/completions", generation(Endpoint::kChat), Access::kKey, true},
      {"POST", "/v1/completions", generation(Endpoint::kCompletions), Access::kKey, true},
      {"GET", "/v1/models", [&front](HttpRequest, auto reply) { reply->send(list_models(front)); }},
      {"GET", std::string(kModelPrefix) + "*",
       [&front](HttpRequest request, auto reply) {
         reply->send(one_model(front, request.path.substr(kModelPrefix.size())));
       }},
  };
}

}  // namespace skiff
