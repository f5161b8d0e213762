// route/wire.h -- a connection to a backend, plain or over TLS. On the router's thread.
#pragma once
#include <boost/asio/async_result.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>

#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace skiff::route {

namespace net = boost::asio;
using Socket = net::ip::tcp::socket;

// Returns what connections to backends prove their certificates by: those of a PEM file or, if its
// name is empty, the system's. Throws LoadError if the file cannot be used.
std::shared_ptr<net::ssl::context> client_tls(const std::string& ca_file);

class Wire {
 public:
  using ErrorCode = boost::system::error_code;
  explicit Wire(net::io_context& io) : socket_(std::make_unique<Socket>(io)) {}

  // The connection below TLS: to connect it, and to set its options.
  Socket& socket() { return tls_ ? tls_->next_layer() : *socket_; }
  // From now on TLS is spoken, to a server whose certificate must be good for `host`; handshake()
  // follows. The context must outlive this.
  void secure(net::ssl::context& context, const std::string& host);
  void handshake(std::function<void(const ErrorCode&)> done);
  // `buffers` and what they point to stay until `done`.
  template <class Buffers, class Done>
  void write(const Buffers& buffers, Done done) {
    if (tls_)
      net::async_write(*tls_, buffers, kept(std::move(done)));
    else
      net::async_write(*socket_, buffers, std::move(done));
  }
  template <class Done>
  void read(net::mutable_buffer buffer, Done done) {
    if (tls_)
      tls_->async_read_some(buffer, kept(std::move(done)));
    else
      socket_->async_read_some(buffer, std::move(done));
  }
  // Returns true if the connection is open and nothing has come that was not read, as is right for
  // one that waits.
  bool silent();
  // Returns true if this error of a read is the end that the other side meant: over TLS only the
  // end that it announced is.
  bool ended_well(const ErrorCode& error) const;
  // At once, without the farewell of TLS: whoever waits for an answer that breaks off gives it up.
  void close();

 private:
  using Tls = net::ssl::stream<Socket>;
  // An operation of TLS touches its stream when it ends, though this may be gone by then.
  template <class Done>
  auto kept(Done done) {
    return [tls = tls_, done = std::move(done)](const ErrorCode& error, size_t bytes) mutable {
      done(error, bytes);
    };
  }
  // Either one of these.
  std::unique_ptr<Socket> socket_;
  std::shared_ptr<Tls> tls_;
};

}  // namespace skiff::route
