#include "serve/messages/routes.h"

#include "serve/messages/to_chat.h"
#include "serve/messages/writer.h"

namespace skiff::messages {
namespace {

constexpr char kPath[] = "/v1/messages";

constexpr turn::FieldName kRenamed[] = {{"stop", "stop_sequences"},
                                        {"reasoning_effort", "output_config.effort"},
                                        {"response_format", "output_config.format"},
                                        {"response_format", "output_format"}};

class Protocol : public turn::TurnProtocol {
 public:
  std::span<const turn::FieldName> renamed() const override { return kRenamed; }
  explicit Protocol(bool counts) : counts_(counts) {}

  Result<OrderedJson> to_chat(const OrderedJson& body) const override {
    return messages::to_chat(body, counts_);
  }

  http::HttpResponse refusal(const http::ApiError& error,
                             const std::string& request_id) const override {
    return {
        .status = error.status, .body = error_text(error, request_id), .headers = error.headers};
  }

  std::unique_ptr<turn::TurnWriter> writer(turn::TurnInfo info,
                                           const turn::TurnBody& body) const override {
    return make_writer(std::move(info), body);
  }

 private:
  const bool counts_;
};

}  // namespace

http::HttpHeaders messages_headers(const http::HttpRequest& request) {
  if (request.path != kPath && !request.path.starts_with(std::string(kPath) + "/")) return {};
  return {{"request-id", request.request_id}};
}

std::vector<http::Route> messages_routes(service::ProtocolContext& context,
                                         const http::ApiKeys& keys) {
  static const Protocol answers(/*counts=*/false), counts(/*counts=*/true);
  return {turn::turn_route(kPath, answers, context, keys),
          turn::count_route("/v1/messages/count_tokens", "input_tokens", counts, context)};
}

}  // namespace skiff::messages
