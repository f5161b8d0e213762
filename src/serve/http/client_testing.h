// serve/http/client_testing.h -- a blocking HTTP/1.1 client on one socket, plain or under TLS, for
// tests: it can send anything and hang up at any byte.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>

#include "base/json.h"

namespace skiff::http {

struct ClientResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  Json json() const { return Json::parse(body); }
};

class TestClient {
 public:
  enum class Over { kTcp, kTls };

  explicit TestClient(uint16_t port, Over over = Over::kTcp) {
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    timeval limit{10, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("cannot connect");
    if (over == Over::kTls) shake_hands();
  }
  ~TestClient() { hang_up(); }
  TestClient(const TestClient&) = delete;

  // Closes the socket without close_notify, under TLS too.
  void hang_up() {
    if (tls_) SSL_free(tls_);
    tls_ = nullptr;
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  // Ends the sending side; the client still reads.
  void half_close() {
    if (tls_)
      SSL_shutdown(tls_);
    else
      shutdown(fd_, SHUT_WR);
  }
  // Only under TLS: whether the server has sent close_notify.
  bool got_close_notify() const { return (SSL_get_shutdown(tls_) & SSL_RECEIVED_SHUTDOWN) != 0; }
  // Only under TLS: the name in the server's certificate.
  std::string certificate_name() const {
    X509* leaf = SSL_get1_peer_certificate(tls_);
    char name[100] = "";
    X509_NAME_get_text_by_NID(X509_get_subject_name(leaf), NID_commonName, name, sizeof name);
    X509_free(leaf);
    return name;
  }
  void send_raw(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = tls_ ? SSL_write(tls_, bytes.data(), static_cast<int>(bytes.size()))
                                : ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;  // the server hung up; its answer may still be readable
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  void send(const std::string& method, const std::string& path, const std::string& body = "",
            const std::string& headers = "") {
    send_raw(method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers +
             (body.empty() ? "" : "Content-Length: " + std::to_string(body.size()) + "\r\n") +
             "\r\n" + body);
  }

  // False at the end of the connection (or after ten seconds).
  bool fill() {
    char buffer[4096];
    const ssize_t got =
        tls_ ? SSL_read(tls_, buffer, sizeof buffer) : recv(fd_, buffer, sizeof buffer, 0);
    if (got <= 0) return false;
    in_.append(buffer, static_cast<size_t>(got));
    return true;
  }
  std::string take_until(const std::string& mark) {
    size_t at;
    while ((at = in_.find(mark)) == std::string::npos)
      if (!fill()) throw std::runtime_error("connection ended before \"" + mark + "\"");
    return take(at + mark.size());
  }
  std::string take(size_t count) {
    while (in_.size() < count)
      if (!fill()) throw std::runtime_error("connection ended early");
    std::string out = in_.substr(0, count);
    in_.erase(0, count);
    return out;
  }

  ClientResponse head() {
    ClientResponse response;
    std::string line = take_until("\r\n");
    response.status = std::stoi(line.substr(9, 3));
    while ((line = take_until("\r\n")) != "\r\n") {
      const size_t colon = line.find(": ");
      std::string name = line.substr(0, colon);
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      response.headers[name] = line.substr(colon + 2, line.size() - colon - 4);
    }
    return response;
  }
  // The next chunk of a chunked body; empty at its end.
  std::string chunk() {
    const size_t size = std::stoul(take_until("\r\n"), nullptr, 16);
    std::string part = take(size + 2);
    part.resize(size);
    return part;
  }
  ClientResponse response(bool is_head = false) {
    ClientResponse response = head();
    if (is_head) return response;
    if (response.headers.contains("transfer-encoding")) {
      for (std::string part; !(part = chunk()).empty();) response.body += part;
    } else if (response.headers.contains("content-length")) {
      response.body = take(std::stoul(response.headers["content-length"]));
    } else {
      while (fill()) {
      }
      response.body = take(in_.size());
    }
    return response;
  }
  ClientResponse call(const std::string& method, const std::string& path,
                      const std::string& body = "", const std::string& headers = "") {
    send(method, path, body, headers);
    return response(method == "HEAD");
  }
  ClientResponse post(const std::string& path, const Json& body) {
    return call("POST", path, body.dump());
  }

 private:
  void shake_hands() {
    std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without MSG_NOSIGNAL
    SSL_CTX* context = SSL_CTX_new(TLS_client_method());
    tls_ = SSL_new(context);
    SSL_CTX_free(context);
    SSL_set_fd(tls_, fd_);
    if (SSL_connect(tls_) == 1) return;
    hang_up();
    throw std::runtime_error("no TLS handshake");
  }

  int fd_ = -1;
  SSL* tls_ = nullptr;
  std::string in_;
};

inline ClientResponse post_once(uint16_t port, const std::string& path, const Json& body) {
  return TestClient(port).post(path, body);
}

// The JSON of each event without comments; "[DONE]" as that string.
inline std::vector<Json> sse_events(const std::string& body) {
  std::vector<Json> events;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    if (end == std::string::npos) throw std::runtime_error("an event is not finished");
    const std::string event = body.substr(at, end - at);
    at = end + 2;
    if (event[0] == ':') continue;
    if (event.rfind("data: ", 0) != 0) throw std::runtime_error("not an event: " + event);
    events.push_back(event == "data: [DONE]" ? Json("[DONE]") : Json::parse(event.substr(6)));
  }
  return events;
}

// Whether the condition comes true within five seconds.
inline bool eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 500; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return holds();
}

}  // namespace skiff::http
