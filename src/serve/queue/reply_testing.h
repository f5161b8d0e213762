// serve/queue/reply_testing.h -- a reply that keeps what it is told.
#pragma once
#include <functional>
#include <string>
#include <utility>

#include "serve/http/server.h"

namespace skiff::queue::testing {

class KeptReply : public http::HttpReply {
 public:
  void send(http::HttpResponse given) override {
    ++sends;
    response = std::move(given);
  }
  void begin_stream(http::HttpResponse head) override {
    ++begins;
    response = std::move(head);
  }
  bool write(std::string part) override {
    if (begins == 0 || ends > 0) return false;
    response.body += part;
    return true;
  }
  void end_stream() override { ++ends; }
  void when_sent(std::function<void()>) override {}
  void on_close(std::function<void()> given) override { closed = std::move(given); }
  void on_worker(std::function<void()> job) override { job(); }

  http::HttpResponse response;
  int sends = 0, begins = 0, ends = 0;
  std::function<void()> closed;
};

}  // namespace skiff::queue::testing
