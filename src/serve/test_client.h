// serve/test_client.h -- a plain blocking HTTP/1.1 client on one socket, for tests: it can send
// anything and hang up at any byte.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <stdexcept>
#include <string>

#include "base/json.h"

namespace skiff {

struct ClientResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  Json json() const { return Json::parse(body); }
};

class TestClient {
 public:
  explicit TestClient(uint16_t port) {
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    timeval limit{10, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("cannot connect");
  }
  ~TestClient() { hang_up(); }
  TestClient(const TestClient&) = delete;

  void hang_up() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  void send_raw(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;  // the server hung up; its answer may still be readable
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  void send(const std::string& method, const std::string& path, const std::string& body = "",
            const std::string& headers = "") {
    send_raw(method + " " + path + " HTTP/1.1\r\nHost: test\r\n" + headers +
             (body.empty() ? "" : "Content-Length: " + std::to_string(body.size()) + "\r\n") +
             "\r\n" + body);
  }

  // False at the end of the connection (or after ten seconds).
  bool fill() {
    char buffer[4096];
    const ssize_t got = recv(fd_, buffer, sizeof buffer, 0);
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
  int fd_ = -1;
  std::string in_;
};

inline ClientResponse post_once(uint16_t port, const std::string& path, const Json& body) {
  return TestClient(port).post(path, body);
}

// The JSON of each event; "[DONE]" as that string, comments left out.
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

}  // namespace skiff
