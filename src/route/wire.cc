#include "route/wire.h"

#include <openssl/ssl.h>
#include <sys/socket.h>

#include <boost/asio/ssl/host_name_verification.hpp>
#include <cerrno>
#include <tuple>

#include "base/load_error.h"

namespace skiff::route {

std::shared_ptr<net::ssl::context> client_tls(const std::string& ca_file) {
  auto tls = std::make_shared<net::ssl::context>(net::ssl::context::tls_client);
  SSL_CTX_set_min_proto_version(tls->native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_mode(tls->native_handle(), SSL_MODE_RELEASE_BUFFERS);
  tls->set_verify_mode(net::ssl::verify_peer);
  Wire::ErrorCode error;
  if (ca_file.empty())
    std::ignore = tls->set_default_verify_paths(error);
  else
    std::ignore = tls->load_verify_file(ca_file, error);
  if (error && !ca_file.empty())
    fail_load("--backend-ca-file {}: no PEM file with certificates ({})", ca_file, error.message());
  return tls;
}

void Wire::secure(net::ssl::context& context, const std::string& host) {
  tls_ = std::make_shared<Tls>(std::move(*socket_), context);
  socket_.reset();
  tls_->set_verify_callback(net::ssl::host_name_verification(host));
  ErrorCode not_an_address;
  std::ignore = net::ip::make_address(host, not_an_address);
  // SNI has names and no addresses (RFC 6066, section 3).
  if (not_an_address) SSL_set_tlsext_host_name(tls_->native_handle(), host.c_str());
}

void Wire::handshake(std::function<void(const ErrorCode&)> done) {
  tls_->async_handshake(
      net::ssl::stream_base::client,
      [tls = tls_, done = std::move(done)](const ErrorCode& error) { done(error); });
}

bool Wire::silent() {
  if (tls_ && SSL_pending(tls_->native_handle()) > 0) return false;
  char byte;
  return recv(socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
         (errno == EAGAIN || errno == EWOULDBLOCK);
}

bool Wire::ended_well(const ErrorCode& error) const { return !tls_ || error == net::error::eof; }

void Wire::close() {
  ErrorCode ignored;
  std::ignore = socket().close(ignored);
}

}  // namespace skiff::route
