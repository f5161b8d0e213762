// serve/http/stream.h -- a TCP connection, plain or under TLS, behind one interface. All functions
// are called on the socket's strand, which also calls `done`. Private to the HTTP server.
#pragma once
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/write.hpp>

#include <netinet/tcp.h>

#include <memory>
#include <tuple>
#include <utility>

namespace skiff::http {

namespace net = boost::asio;
using StreamSocket = net::basic_stream_socket<net::ip::tcp, net::strand<net::any_io_executor>>;

class HttpStream {
 public:
  // Without a context the connection is plain TCP.
  HttpStream(StreamSocket socket, net::ssl::context* context) : socket_(std::move(socket)) {
    if (context) tls_ = std::make_unique<net::ssl::stream<StreamSocket&>>(socket_, *context);
  }

  HttpStream(const HttpStream&) = delete;

  auto executor() { return socket_.get_executor(); }
  StreamSocket& socket() { return socket_; }
  bool secure() const { return tls_ != nullptr; }

  // Must be the first operation, and only if secure().
  template <class Done>
  void handshake(Done done) {
    tls_->async_handshake(net::ssl::stream_base::server, std::move(done));
  }
  template <class Done>
  void read_some(net::mutable_buffer to, Done done) {
    if (tls_)
      tls_->async_read_some(to, std::move(done));
    else
      socket_.async_read_some(to, std::move(done));
  }
  // Writes all of it, or fails.
  template <class Buffers, class Done>
  void write(const Buffers& from, Done done) {
    write(from, std::move(done), [] {});
  }
  // The same; calls `progress`, which must not throw, whenever the kernel has taken a part of it.
  template <class Buffers, class Done, class Progress>
  void write(const Buffers& from, Done done, Progress progress) {
    const auto next = [progress](const boost::system::error_code& error, size_t taken) -> size_t {
      constexpr size_t kPart = 64u << 10;
      if (!error && taken > 0) progress();
      return error ? 0 : kPart;
    };
    if (tls_)
      net::async_write(*tls_, from, next, std::move(done));
    else
      net::async_write(socket_, from, next, std::move(done));
  }
  // Signals the end of the stream to the peer. Under TLS that is close_notify, and `done` is called
  // with the peer's answer to it, or with whatever it sends instead.
  template <class Done>
  void finish(Done done) {
    if (tls_) return tls_->async_shutdown(std::move(done));
    end();
    net::post(executor(),
              [done = std::move(done)]() mutable { done(boost::system::error_code{}); });
  }
  // Shuts down the sending side of the socket.
  void end() {
    boost::system::error_code ignored;
    std::ignore = socket_.shutdown(net::ip::tcp::socket::shutdown_send, ignored);
  }
  // Reads raw bytes, TLS or not, that are to be dropped after finish().
  template <class Done>
  void read_wire(net::mutable_buffer to, Done done) {
    socket_.async_read_some(to, std::move(done));
  }
  void close() {
    boost::system::error_code ignored;
    std::ignore = socket_.close(ignored);
  }
  // Whether the peer has closed or reset the connection. Bytes that it sent before may still be
  // unread.
  bool peer_left() {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (getsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return true;
    return info.tcpi_state != TCP_ESTABLISHED;
  }
  // Whether the error is one of TLS, so that TCP below it may still work.
  static bool only_tls(const boost::system::error_code& error) {
    return error.category() == net::error::get_ssl_category();
  }

 private:
  StreamSocket socket_;
  std::unique_ptr<net::ssl::stream<StreamSocket&>> tls_;
};

}  // namespace skiff::http
