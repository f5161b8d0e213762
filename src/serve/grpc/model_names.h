// serve/grpc/model_names.h -- by which names the calls know the model.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "serve/grpc/messages.h"
#include "serve/service/protocol_context.h"

namespace skiff::grpc {

// The name of the one model of PaddleNLP's server, which its clients ask for.
constexpr std::string_view kPaddleModel = "model";

// Returns why there is no model of this name and version; nothing if there is one. The names are
// `kPaddleModel` and those that the server has over HTTP.
std::optional<std::string> refuse_model(const service::ProtocolContext& protocol,
                                        const ModelName& model);

}  // namespace skiff::grpc
