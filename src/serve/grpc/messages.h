// serve/grpc/messages.h -- the messages of inference.proto (beside this file), as far as the server
// reads and writes them.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace skiff::grpc {

// The one version that a model has.
constexpr std::string_view kModelVersion = "1";

struct ModelName {
  std::string_view name, version;
};

// Reads ModelReadyRequest, ModelMetadataRequest or ModelConfigRequest.
Result<ModelName> read_model_name(std::string_view message);

// A ModelInferRequest: the one string of its input IN. All views are into the message, or empty.
struct InferRequest {
  ModelName model;
  std::string_view id;
  std::string_view object;   // JSON
  bool typed = false;        // IN came as typed contents, and so OUT will go; else both are raw
  bool empty_final = false;  // an empty answer marks the end (triton_enable_empty_final_response)
  std::string problem;  // why it cannot be served; empty: it can. model and id are valid anyway
};

InferRequest read_infer_request(std::string_view message);

// What a ModelInferResponse holds.
struct InferAnswer {
  std::string_view model, id;
  // What OUT holds, as JSON; nothing: the answer has no output.
  std::optional<std::string_view> object;
  bool typed = false;
  std::optional<bool> final;  // the parameter triton_final_response
};

std::string infer_response(const InferAnswer& answer);
std::string stream_response(std::string_view infer_response);
// A ModelStreamInferResponse that ends one request of a stream. `id` names the request.
std::string stream_error(std::string_view model, std::string_view id, std::string_view why);

std::string flag_response(bool value);  // live or ready
std::string server_metadata(std::string_view version);
std::string model_metadata(std::string_view model);
std::string model_config(std::string_view model);

}  // namespace skiff::grpc
