#include "serve/grpc_port.h"

#include "serve/http/access_log.h"
#include "serve/probes.h"

namespace skiff::serve {
namespace {

grpc::GrpcConfig grpc_config(const ServerConfig& config) {
  const http::HttpConfig& http = config.http;
  return {.host = http.host,
          .port = static_cast<uint16_t>(config.grpc_port),
          .worker_threads = http.worker_threads,
          .large_message = http.large_body,
          .max_message = http.max_body,
          .max_metadata = http.max_header,
          .max_memory = http.max_bodies,
          .max_unsent = http.max_unsent,
          .handshake_seconds = http.header_seconds,
          .idle_seconds = http.idle_seconds,
          .tls_certificate = http.tls_certificate,
          .tls_key = http.tls_key};
}

}  // namespace

std::unique_ptr<grpc::GrpcServer> open_grpc_port(
    const ServerConfig& config, const http::ApiKeys& keys,
    std::function<std::shared_ptr<ServerContext>()> context,
    std::function<std::string()> progress) {
  if (config.grpc_port < 0) return nullptr;
  grpc::Backend backend{.protocol = [context]() -> std::shared_ptr<service::ProtocolContext> {
                          const auto now = context();
                          return now ? now->protocol : nullptr;
                        },
                        .unready =
                            [context = std::move(context), progress = std::move(progress)] {
                              const auto now = context();
                              return now ? unready(*now) : progress();
                            },
                        .keys = keys,
                        .version = config.version,
                        .paddle = config.paddle,
                        .record = {}};
  if (config.access_log) backend.record = http::log_access;
  return grpc::make_grpc_server(grpc_config(config), std::move(backend));
}

}  // namespace skiff::serve
