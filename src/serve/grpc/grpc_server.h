// serve/grpc/grpc_server.h -- the gRPC port: connections, limits, keys and TLS. What is answered
// there is in methods.h.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "serve/grpc/exchange.h"

namespace skiff::grpc {

struct GrpcConfig {
  std::string host = "0.0.0.0";           // name or address; IPv6 with or without brackets
  uint16_t port = 0;                      // 0: any free port
  int worker_threads = 2;                 // threads that parse and tokenize
  size_t large_message = 1u << 20;        // bytes from which a message has a thread of its own
  size_t max_message = 16u << 20;         // bytes of one message of a client
  size_t max_metadata = 16u << 10;        // bytes of a call's metadata
  int64_t max_memory = int64_t{1} << 30;  // bytes that clients' messages may hold together
  size_t max_unsent = 4u << 20;           // unsent bytes of a call; a slower client is disconnected
  int max_calls = 128;                    // calls of one connection at a time
  double handshake_seconds = 30;
  double idle_seconds = 180;    // lifetime of a connection without a call
  std::string tls_certificate;  // PEM files; both or neither. Read again when they change
  std::string tls_key;
};

class GrpcServer {
 public:
  virtual ~GrpcServer() = default;
  virtual uint16_t port() const = 0;
  // Inferences whose answers are not complete.
  virtual int open_requests() const = 0;
  // Called every second or so, from one thread.
  virtual void tick() = 0;
  // Ends all calls and the threads. Idempotent.
  virtual void stop() = 0;
};

// Listens and answers from now on. Throws LoadError naming the port, or what is wrong with the TLS
// files, and in a build without gRPC always.
std::unique_ptr<GrpcServer> make_grpc_server(GrpcConfig config, Backend backend);

}  // namespace skiff::grpc
