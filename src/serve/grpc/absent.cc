// Stands in for the gRPC server in builds without libgrpc++ (SKIFF_GRPC).
#include "base/load_error.h"
#include "serve/grpc/grpc_server.h"

namespace skiff::grpc {

std::unique_ptr<GrpcServer> make_grpc_server(GrpcConfig, Backend) {
  throw LoadError(
      "--grpc-port: this build has no gRPC; install libgrpc++-dev and build again, or leave the "
      "flag out");
}

}  // namespace skiff::grpc
