#include "serve/responses/routes.h"

#include "serve/responses/to_chat.h"
#include "serve/responses/writer.h"

namespace skiff::responses {
namespace {

// Names the field of the request that an error is about: checks of the chat completion, which the
// request became, name its messages.
http::ApiError named(http::ApiError error) {
  if (error.param == "messages") error.param = "input";
  return error;
}

constexpr turn::FieldName kRenamed[] = {{"max_completion_tokens", "max_output_tokens"},
                                        {"reasoning_effort", "reasoning.effort"},
                                        {"response_format", "text.format"},
                                        {"verbosity", "text.verbosity"}};

class Protocol : public turn::TurnProtocol {
 public:
  std::span<const turn::FieldName> renamed() const override { return kRenamed; }
  Result<OrderedJson> to_chat(const OrderedJson& body) const override {
    return responses::to_chat(body);
  }
  http::HttpResponse refusal(const http::ApiError& error, const std::string&) const override {
    return http::error_response(named(error));
  }
  std::unique_ptr<turn::TurnWriter> writer(turn::TurnInfo info,
                                           const turn::TurnBody& body) const override {
    return make_writer(std::move(info), body);
  }
};

http::HttpResponse not_kept(const http::HttpRequest& request) {
  http::ApiError error = http::api_error(404, "there is no response " +
                                                  request.path.substr(request.path.rfind('/') + 1) +
                                                  ": this server keeps none");
  return http::error_response(error);
}

}  // namespace

std::vector<http::Route> responses_routes(service::ProtocolContext& context,
                                          const http::ApiKeys& keys) {
  static const Protocol protocol;
  const auto refuse = [](const http::HttpRequest& request,
                         const std::shared_ptr<http::HttpReply>& reply) {
    reply->send(not_kept(request));
  };
  return {turn::turn_route("/v1/responses", protocol, context, keys),
          {.method = "GET", .path = "/v1/responses/*", .handler = refuse},
          {.method = "DELETE", .path = "/v1/responses/*", .handler = refuse}};
}

}  // namespace skiff::responses
