// serve/grpc_port.h -- the gRPC port of the server.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "serve/grpc/grpc_server.h"
#include "serve/server_config.h"
#include "serve/server_context.h"

namespace skiff::serve {

// Null if the configuration has no such port. `context` returns null while the model loads, and
// `progress` says then how far that is. `keys` outlive the result. Throws LoadError.
std::unique_ptr<grpc::GrpcServer> open_grpc_port(
    const ServerConfig& config, const http::ApiKeys& keys,
    std::function<std::shared_ptr<ServerContext>()> context, std::function<std::string()> progress);

}  // namespace skiff::serve
