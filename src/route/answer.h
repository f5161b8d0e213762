// route/answer.h -- the answer to one client: what a backend sends becomes the reply, whole where
// it is short, streamed where it is long or of unknown length.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "route/core.h"
#include "serve/http/server.h"

namespace skiff::route {

// Not thread-safe: the router's thread makes all calls.
class Answer {
 public:
  Answer(RouterCore& core, std::string path, std::shared_ptr<http::HttpReply> reply)
      : core_(core), path_(std::move(path)), reply_(std::move(reply)) {}

  // `closed` is called on any thread if the client leaves before the end.
  void on_close(std::function<void()> closed) { reply_->on_close(std::move(closed)); }
  // Begins the reply. `left` is the size of the body in bytes, -1 if that is not known.
  void begin(const ResponseHead& head, int64_t left);
  // Appends to the body. `pause` is called if the client reads slower than the backend writes, and
  // `resume`, on the router's thread, when it has caught up.
  void add(std::string part, const std::function<void()>& pause, std::function<void()> resume);
  void end();
  // Ends the reply where the backend broke off. A stream of events gets one more, which says so;
  // any other reply ends with its connection, so that the client sees that it is not whole.
  void break_off(const std::string& why);
  // Answers with an error. Requires that begin() was not called.
  void refuse(int status, const std::string& why);
  // Ends the answer without a word, because the client has left.
  void drop();
  bool began() const { return began_; }

 private:
  void count(int status) { ++core_.metrics.answers[status]; }

  RouterCore& core_;
  const std::string path_;
  std::shared_ptr<http::HttpReply> reply_;
  http::HttpResponse response_;  // its body is collected where it is short
  bool began_ = false, streaming_ = false;
  size_t unconfirmed_ = 0;  // bytes written since the client had taken everything
};

}  // namespace skiff::route
