// The calls that ask about the server and its model: one message, one answer.
#include "serve/grpc/messages.h"
#include "serve/grpc/methods.h"
#include "serve/grpc/model_names.h"

namespace skiff::grpc {
namespace {

using Answer = std::string (*)(Shared& shared, std::string_view model);

// Answers whatever the message says.
class ServerCall : public Handler {
 public:
  ServerCall(Shared& shared, Exchange& exchange, Answer answer)
      : shared_(shared), exchange_(exchange), answer_(answer) {}
  void message(std::string) override {
    exchange_.send(answer_(shared_, {}));
    exchange_.finish(StatusCode::kOk, {});
  }

 private:
  Shared& shared_;
  Exchange& exchange_;
  const Answer answer_;
};

class ModelCall : public Handler {
 public:
  ModelCall(Shared& shared, Exchange& exchange, Answer answer)
      : shared_(shared), exchange_(exchange), answer_(answer) {}
  void message(std::string bytes) override {
    const auto model = read_model_name(bytes);
    if (!model) return exchange_.finish(StatusCode::kInvalidArgument, model.error().what);
    const auto protocol = shared_.backend.protocol();
    if (!protocol) return exchange_.finish(StatusCode::kUnavailable, shared_.backend.unready());
    if (const auto unknown = refuse_model(*protocol, *model))
      return exchange_.finish(StatusCode::kNotFound, *unknown);
    exchange_.send(answer_(shared_, model->name));
    exchange_.finish(StatusCode::kOk, {});
  }

 private:
  Shared& shared_;
  Exchange& exchange_;
  const Answer answer_;
};

// A model that is not there is not ready: clients that wait for one ask until it is.
class ReadyCall : public Handler {
 public:
  ReadyCall(Shared& shared, Exchange& exchange) : shared_(shared), exchange_(exchange) {}
  void message(std::string bytes) override {
    const auto model = read_model_name(bytes);
    if (!model) return exchange_.finish(StatusCode::kInvalidArgument, model.error().what);
    const auto protocol = shared_.backend.protocol();
    const bool ready = protocol && shared_.serving() && !refuse_model(*protocol, *model);
    exchange_.send(flag_response(ready));
    exchange_.finish(StatusCode::kOk, {});
  }

 private:
  Shared& shared_;
  Exchange& exchange_;
};

}  // namespace

std::optional<std::string> refuse_model(const service::ProtocolContext& protocol,
                                        const ModelName& model) {
  if (model.name != kPaddleModel)
    if (const auto refused = protocol.admission.check_model(model.name)) return refused->message;
  if (model.version.empty() || model.version == kModelVersion) return std::nullopt;
  return fmt::format("the model has version {} and no other", kModelVersion);
}

std::unique_ptr<Handler> server_live(Shared& shared, Exchange& exchange) {
  return std::make_unique<ServerCall>(
      shared, exchange, [](Shared&, std::string_view) { return flag_response(true); });
}

std::unique_ptr<Handler> server_ready(Shared& shared, Exchange& exchange) {
  return std::make_unique<ServerCall>(
      shared, exchange, [](Shared& all, std::string_view) { return flag_response(all.serving()); });
}

std::unique_ptr<Handler> server_metadata_call(Shared& shared, Exchange& exchange) {
  return std::make_unique<ServerCall>(shared, exchange, [](Shared& all, std::string_view) {
    return server_metadata(all.backend.version);
  });
}

std::unique_ptr<Handler> model_ready(Shared& shared, Exchange& exchange) {
  return std::make_unique<ReadyCall>(shared, exchange);
}

std::unique_ptr<Handler> model_metadata_call(Shared& shared, Exchange& exchange) {
  return std::make_unique<ModelCall>(
      shared, exchange, [](Shared&, std::string_view model) { return model_metadata(model); });
}

std::unique_ptr<Handler> model_config_call(Shared& shared, Exchange& exchange) {
  return std::make_unique<ModelCall>(
      shared, exchange, [](Shared&, std::string_view model) { return model_config(model); });
}

}  // namespace skiff::grpc
