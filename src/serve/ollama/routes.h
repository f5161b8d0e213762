// serve/ollama/routes.h -- the part of Ollama's API that clients of a served model use: chat,
// generate, and what there is. Managing models is answered 501.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "serve/http/api_keys.h"
#include "serve/http/route_table.h"
#include "serve/service/protocol_context.h"

namespace skiff::ollama {

// What the API tells of the served model.
struct ModelCard {
  std::string architecture;  // "qwen3"
  std::string dtype;         // the type of the arithmetic: "bfloat16"
  std::string quantization;  // how the weights are quantized; empty: not at all
  std::string version;       // this server's version
  bool calls = false,
       thinks = false;  // its tool calls, and its reasoning, can be told from the rest
};

// "GET /" is among them: it is for clients that ask whether Ollama runs, so a route for browsers
// must come before these.
std::vector<http::Route> ollama_routes(service::ProtocolContext& context, const http::ApiKeys& keys,
                                       ModelCard card);

}  // namespace skiff::ollama
